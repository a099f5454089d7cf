//! Reads of machines, put together: many ids in one list cost MAAS an eighth of as many single reads.

use std::sync::Arc;
use std::time::Duration;

use maas_client::{Client, Error, Machine, is_system_id};
use tokio::sync::{mpsc, oneshot};

/// How long the first reader waits for others. Machines that the change feed wakes together ask within milliseconds.
const GATHERING: Duration = Duration::from_millis(20);
/// A list of fifty keeps a region worker busy for under two seconds.
const BATCH: usize = 50;

type Answer = Result<Option<Machine>, Arc<Error>>;
type Question = (String, oneshot::Sender<Answer>);

/// Reads machines by id. Questions that come together are asked together; every answer was given after its question.
#[derive(Clone, Debug)]
pub struct MachineReader {
    client: Client,
    questions: Option<mpsc::UnboundedSender<Question>>,
}

impl MachineReader {
    /// A reader with this client. It works as long as any clone of it lives.
    pub fn new(client: Client) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        tokio::spawn(answer(client.clone(), asked));
        Self { client, questions: Some(questions) }
    }

    /// A reader that waits for nobody else's questions.
    pub fn alone(client: Client) -> Self {
        Self { client, questions: None }
    }

    /// One machine as MAAS has it now. [`ErrorKind::NotFound`](maas_client::ErrorKind::NotFound) is MAAS's word about this very
    /// id: an id that is missing from a list is asked for by itself, because a list leaves away what belongs to others (S1).
    pub async fn read(&self, system_id: &str) -> Result<Machine, Arc<Error>> {
        // One that cannot be an id would spoil the list for everybody in it; by itself it is refused in words.
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
        // In a task of its own, so that the next batch need not wait; the client bounds how many are under way.
        tokio::spawn(ask(client.clone(), std::mem::take(&mut batch)));
    }
}

/// Statuses that say something about the sender, and not about the question.
fn is_about_us(status: u16) -> bool {
    matches!(status, 401 | 403 | 429)
}

async fn ask(client: Client, batch: Vec<Question>) {
    // One id alone needs no list: a single read also tells absent from hidden.
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
            // MAAS objects to the question, so to one of the ids in it: each is asked for by itself.
            Err(error) if error.status().is_some_and(|status| (400..500).contains(&status) && !is_about_us(status)) => {
                Ok(None)
            }
            Err(error) => Err(error.clone()),
        };
        // Whoever asked may have gone meanwhile.
        let _ = answer.send(machine);
    }
}
