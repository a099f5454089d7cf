//! Batches reads of machines: a list of many IDs costs MAAS an eighth of as many single reads.

use std::sync::Arc;
use std::time::Duration;

use maas_client::{Client, Error, Machine, is_system_id};
use tokio::sync::{mpsc, oneshot};

/// How long the first reader waits for others. Machines that the change feed wakes together are read within
/// milliseconds.
const GATHERING: Duration = Duration::from_millis(20);
/// A list of fifty keeps a region worker busy for less than two seconds.
const BATCH: usize = 50;

type Answer = Result<Option<Machine>, Arc<Error>>;
type Question = (String, oneshot::Sender<Answer>);

/// Reads machines by ID. Concurrent reads are batched; every answer was given after its request.
#[derive(Clone, Debug)]
pub struct MachineReader {
    client: Client,
    questions: Option<mpsc::UnboundedSender<Question>>,
}

impl MachineReader {
    /// A batching reader with this client. It works as long as any clone of it lives.
    pub fn new(client: Client) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        tokio::spawn(answer(client.clone(), asked));
        Self { client, questions: Some(questions) }
    }

    /// A reader without batching.
    pub fn alone(client: Client) -> Self {
        Self { client, questions: None }
    }

    /// One machine as MAAS has it now. [`ErrorKind::NotFound`](maas_client::ErrorKind::NotFound) is MAAS's answer about
    /// this very ID: an ID that is missing from a list is read individually, because a list omits machines that belong
    /// to others (S1).
    pub async fn read(&self, system_id: &str) -> Result<Machine, Arc<Error>> {
        // A malformed ID would fail the list for all readers in the batch; individually it gets its own error message.
        if let Some(questions) = self.questions.as_ref().filter(|_| is_system_id(system_id)) {
            let (answer, answered) = oneshot::channel();
            if questions.send((system_id.to_owned(), answer)).is_ok()
                && let Ok(answer) = answered.await
                && let Some(machine) = answer?
            {
                return Ok(machine);
            }
        }
        self.client.machines().read(system_id).await.map_err(Arc::new)
    }
}

async fn answer(client: Client, mut asked: mpsc::UnboundedReceiver<Question>) {
    let mut batch = Vec::with_capacity(BATCH);
    while asked.recv_many(&mut batch, 1).await > 0 {
        tokio::time::sleep(GATHERING).await;
        while batch.len() < BATCH
            && let Ok(question) = asked.try_recv()
        {
            batch.push(question);
        }
        // In a separate task, so that the next batch need not wait; the client limits the number in flight.
        tokio::spawn(ask(client.clone(), std::mem::take(&mut batch)));
    }
}

/// Statuses that say something about the sender, not about the request.
fn is_about_us(status: u16) -> bool {
    matches!(status, 401 | 403 | 429)
}

async fn ask(client: Client, batch: Vec<Question>) {
    // A single ID needs no list: a single read also distinguishes absent from hidden.
    if batch.len() == 1 {
        for (_, answer) in batch {
            let _ = answer.send(Ok(None));
        }
        return;
    }
    let mut ids: Vec<&str> = batch.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let found = client.machines().by_ids(&ids).await.map_err(Arc::new);
    for (id, answer) in batch {
        let machine = match &found {
            Ok(machines) => Ok(machines.iter().find(|machine| machine.system_id == id).cloned()),
            // MAAS rejects the request, so at least one of the IDs: each is read individually.
            Err(error) if error.status().is_some_and(|status| (400..500).contains(&status) && !is_about_us(status)) => {
                Ok(None)
            }
            Err(error) => Err(error.clone()),
        };
        // The caller may be gone by now.
        let _ = answer.send(machine);
    }
}
