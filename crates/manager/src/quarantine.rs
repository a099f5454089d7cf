//! Deletes the quarantine tags of past days, and those that no machine carries, from MAAS, once a day for each identity.
//!
//! They belong to no object: a machine that failed may be in use elsewhere by now. So no reconciler does it.

use std::collections::HashMap;
use std::time::Duration;

use capmaas_core::credentials::Name;
use capmaas_core::quarantine::{Effect, Tag, asks_machines, decide};
use jiff::{SignedDuration, Timestamp};
use maas_client::{Client, ErrorKind};

use crate::clock::Clock;
use crate::identity::Identities;
use crate::lease::Fence;

/// How often to check whether an identity is due. The first check comes after the same time, when the startup load is
/// over.
const LOOK: Duration = Duration::from_secs(600);
/// How often MAAS is asked for its tags.
const PERIOD: SignedDuration = SignedDuration::from_hours(24);
/// After an error it is retried earlier; nothing depends on it.
const TRY_AGAIN: SignedDuration = SignedDuration::from_hours(1);
/// A limit per sweep, above the number of days since the last one.
const AT_MOST: usize = 100;

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// All past tags are gone.
    Clean,
    /// This user may not delete tags. The users who created them may.
    NotAllowed,
    /// It was interrupted; the next sweep handles the rest.
    Unfinished,
}

/// Sweeps for every identity in use until it is dropped.
pub async fn run(identities: Identities, clock: Clock, fence: Fence) {
    let mut due: HashMap<Name, Timestamp> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let in_use = identities.in_use();
        due.retain(|name, _| in_use.iter().any(|identity| identity.name == *name));
        for identity in in_use {
            let now = clock.now();
            if due.get(&identity.name).is_some_and(|due| now < *due) {
                continue;
            }
            let pause = match sweep(&identity.client, &clock, &fence).await {
                Swept::Clean | Swept::NotAllowed => PERIOD,
                Swept::Unfinished => TRY_AGAIN,
            };
            due.insert(identity.name, now.saturating_add(pause).unwrap_or(Timestamp::MAX));
        }
    }
}

/// Observes, decides and performs one step at a time until there is nothing left to do.
pub async fn sweep(client: &Client, clock: &Clock, fence: &Fence) -> Swept {
    for _ in 0..AT_MOST {
        let tags = match observe(client, clock.now()).await {
            Ok(tags) => tags,
            Err(error) => {
                tracing::debug!(%error, "the tags of MAAS cannot be listed");
                return Swept::Unfinished;
            }
        };
        let Some(Effect::DeleteTag { name }) = decide(&tags, clock.now()) else { return Swept::Clean };
        if fence.check().is_err() {
            return Swept::Unfinished;
        }
        match client.tags().delete(&name).await {
            Ok(()) => tracing::info!(tag = name, "deleted an expired quarantine tag"),
            // Somebody else was first.
            Err(error) if error.is_not_found() => {}
            Err(error) if error.kind() == ErrorKind::Denied => {
                tracing::debug!(%error, tag = name, "this user may not delete an expired quarantine tag");
                return Swept::NotAllowed;
            }
            Err(error) => {
                tracing::debug!(%error, tag = name, "an expired quarantine tag cannot be deleted");
                return Swept::Unfinished;
            }
        }
    }
    Swept::Unfinished
}

async fn observe(client: &Client, now: Timestamp) -> maas_client::Result<Vec<Tag>> {
    let mut tags: Vec<Tag> = client.tags().list().await?.into_iter().map(seen).collect();
    for tag in tags.iter_mut().filter(|tag| asks_machines(tag, now)) {
        tag.unused = match client.tags().machines(&tag.name).await {
            Ok(machines) => machines.is_empty(),
            // Somebody else has just deleted it.
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error),
        };
    }
    Ok(tags)
}

fn seen(tag: maas_client::Tag) -> Tag {
    let automatic = tag.definition.is_some_and(|definition| !definition.is_empty());
    Tag { name: tag.name, automatic, unused: false }
}

#[cfg(test)]
mod tests {
    use capmaas_core::lease::Timing;
    use maas_client::RetryPolicy;
    use maas_client::transport::in_process;
    use maas_sim::{Config, Simulator};
    use serde_json::json;

    use super::*;

    const KEY: &str = "consumer:token:CANARYadmin";
    const OLD: &str = "capmaas-quarantine-2026-11-12";
    const NEW: &str = "capmaas-quarantine-2026-11-14";

    fn client(maas: &Simulator, key: &str) -> Client {
        let builder = Client::builder("http://maas/MAAS", key).retry(RetryPolicy::never());
        builder.transport(in_process(maas.router(), 1 << 20)).build().unwrap()
    }

    /// A MAAS with a machine that failed on two days, on the day after the second.
    async fn stage() -> (Simulator, Client, Clock) {
        let maas = Simulator::new(Config::driven(KEY.parse().unwrap()));
        let statements = json!([
            {"machine": {"system_id": "sys001", "status": "Ready"}},
            {"user": {"name": "alice", "admin": false, "key": "ck:tk:CANARYalice"}},
        ]);
        maas.control().arrange(&serde_json::from_value::<Vec<_>>(statements).unwrap()).unwrap();
        let admin = client(&maas, KEY);
        for tag in [OLD, NEW, "mine"] {
            admin.tags().create(tag, "").await.unwrap();
            admin.tags().update(tag, &["sys001"], &[]).await.unwrap();
        }
        (maas, admin, Clock::driven("2026-11-15T09:00:00Z".parse().unwrap()).0)
    }

    /// The tags of this test; MAAS has some of its own.
    async fn names(client: &Client) -> Vec<String> {
        let mut names: Vec<String> = client.tags().list().await.unwrap().into_iter().map(|tag| tag.name).collect();
        names.retain(|name| [OLD, NEW, "mine"].contains(&name.as_str()));
        names.sort();
        names
    }

    #[tokio::test]
    async fn s17_only_tags_of_days_that_are_over_leave_maas_and_its_machines() {
        let (maas, admin, clock) = stage().await;
        assert_eq!(sweep(&admin, &clock, &Fence::open()).await, Swept::Clean);
        assert_eq!(names(&admin).await, [NEW, "mine"]);
        let machine = admin.machines().read("sys001").await.unwrap();
        assert!(machine.tag_names.contains(&NEW.to_owned()) && !machine.tag_names.contains(&OLD.to_owned()));
        maas.control().clear_ledger();
        assert_eq!(sweep(&admin, &clock, &Fence::open()).await, Swept::Clean);
        let asked = maas.control().ledger(None);
        let reads = asked.iter().all(|entry| entry.method == "GET");
        assert!(asked.len() == 2 && reads, "all tags, the machines of one, and nothing to do: {asked:?}");
    }

    #[tokio::test]
    async fn s17_a_tag_that_no_machine_carries_any_more_leaves_maas() {
        let (_maas, admin, clock) = stage().await;
        admin.tags().update(NEW, &[], &["sys001"]).await.unwrap();
        assert_eq!(sweep(&admin, &clock, &Fence::open()).await, Swept::Clean);
        assert_eq!(names(&admin).await, ["mine"]);
    }

    #[tokio::test]
    async fn a_user_who_may_not_delete_tags_asks_once_and_leaves_them() {
        let (maas, admin, clock) = stage().await;
        maas.control().clear_ledger();
        let limited = client(&maas, "ck:tk:CANARYalice");
        assert_eq!(sweep(&limited, &clock, &Fence::open()).await, Swept::NotAllowed);
        assert_eq!(maas.control().ledger(None).len(), 3);
        assert_eq!(names(&admin).await, [OLD, NEW, "mine"]);
    }

    #[tokio::test]
    async fn s23_nothing_is_deleted_by_a_manager_that_does_not_lead() {
        let (_maas, admin, clock) = stage().await;
        assert_eq!(sweep(&admin, &clock, &Fence::closed(Timing::default())).await, Swept::Unfinished);
        assert_eq!(names(&admin).await, [OLD, NEW, "mine"]);
    }
}
