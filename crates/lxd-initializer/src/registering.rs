//! The reads and calls for `capmaas_core::registration`: once for the manager, the agent, and the programs that check a node.

use std::time::Duration;

use capmaas_core::Lookup;
use capmaas_core::registration::{Call, Maker, Outcome, Place, VmHost};
use lxd_client::Fingerprint;
use maas_client::{Client, Effect, Error, ErrorKind, NewVmHost, VmHostAuth, VmHostUpdate};
use secrecy::SecretString;

/// How long after its intent was stored a call may still be sent. What remains until the intent is over is for the answer (S2).
pub const SEND: Duration = Duration::from_secs(20);

/// The key pair that MAAS is to use.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: SecretString,
}

/// Performs a call once and returns the ID of the VM host. The client sends within a limit that counts from the intent (S2).
pub async fn perform(maas: &Client, call: &Call, pair: KeyPair) -> Result<i64, Error> {
    let hosts = maas.vm_hosts();
    let KeyPair { certificate, key } = pair;
    let answer = match call {
        Call::Register(new) => {
            let auth = VmHostAuth::Certificate { certificate, key };
            let named = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
            let host = NewVmHost {
                zone: named(&new.place.zone),
                pool: named(&new.place.pool),
                ..NewVmHost::new(&new.name, &new.address, &new.project, auth)
            };
            hosts.create(&host).await
        }
        // MAAS tries the new values immediately but stores them even if they do not work, so the next pass checks.
        Call::Renew { id, address } => {
            let update = VmHostUpdate {
                power_address: Some(address.clone()),
                certificate: Some(certificate),
                key: Some(key),
                ..VmHostUpdate::default()
            };
            hosts.update(*id, &update).await
        }
        Call::Move { id, place } => {
            let update = VmHostUpdate {
                zone: Some(place.zone.clone()),
                pool: Some(place.pool.clone()),
                ..VmHostUpdate::default()
            };
            hosts.update(*id, &update).await
        }
        Call::Refresh { id } => hosts.refresh(*id).await,
    };
    answer.map(|host| host.id)
}

/// How a call ended. That MAAS refuses a second registration of the same LXD proves that this one has no effect: if the earlier one
/// is ours, the next pass finds it.
pub fn outcome(answer: &Result<i64, Error>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Done,
        Err(error) if error.effect() == Effect::None => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    }
}

/// The sentence about a call that failed, for everyone who performs it.
pub fn failure(call: &Call, error: &Error) -> String {
    match call {
        Call::Register(new) => {
            let mut said = format!("cannot register VM host {} at {}: {error}", new.name, new.address);
            if error.kind() == ErrorKind::AlreadyExists {
                said += "; if that is the VM host of an earlier machine, remove it in MAAS while it has no VMs";
            }
            said
        }
        Call::Renew { id, .. } => format!("cannot change VM host {id}: {error}"),
        Call::Move { id, .. } => format!("cannot move VM host {id}: {error}"),
        Call::Refresh { id } => format!("MAAS cannot reach VM host {id}: {error}"),
    }
}

/// A VM host, as far as it shows whose it is.
#[derive(Debug)]
pub struct Claim<'a> {
    /// MAAS shows it on the machine.
    pub on_machine: bool,
    /// The certificate that MAAS uses, in PEM; empty if there is none.
    pub certificate: &'a str,
    /// Of the certificate.
    pub fingerprint: Option<&'a str>,
}

/// The node whose VM host is looked for.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// System ID of its machine.
    pub machine: &'a str,
    /// Its name.
    pub node: &'a str,
    /// The project that was prepared there.
    pub project: &'a str,
    /// The instances in that project.
    pub instances: Lookup<Vec<String>>,
}

/// The VM host of a node, among all: the one that MAAS shows on its machine, otherwise one with the node's name that is ours, which
/// MAAS has not matched yet or has matched wrongly.
pub async fn find(
    maas: &Client,
    all: &[maas_client::VmHost],
    wanted: &Wanted<'_>,
    is_ours: &(dyn Fn(&Claim<'_>) -> bool + Send + Sync),
) -> Result<Lookup<VmHost>, Error> {
    let matched =
        |host: &&maas_client::VmHost| host.host.as_ref().is_some_and(|machine| machine.system_id == wanted.machine);
    let mut candidates: Vec<_> = all.iter().filter(matched).collect();
    candidates.extend(all.iter().filter(|host| !matched(host) && host.name.as_deref() == Some(wanted.node)));
    for candidate in candidates {
        let parameters = maas.vm_hosts().parameters(candidate.id).await?;
        let certificate = parameters.certificate.as_deref().unwrap_or_default();
        let fingerprint = Fingerprint::of_pem(certificate).ok().map(|print| print.to_string());
        let on_machine = matched(&candidate);
        let ours = is_ours(&Claim { on_machine, certificate, fingerprint: fingerprint.as_deref() });
        // A VM host of the same name on another machine is left alone.
        if !on_machine && !ours {
            continue;
        }
        let address = parameters.url();
        let project = parameters.project.unwrap_or_default();
        let strangers = match &wanted.instances {
            Lookup::Found(_) if project != wanted.project => Lookup::Unknown(format!("its project is {project:?}")),
            Lookup::Found(instances) => Lookup::Found(maas.vm_hosts().strangers(candidate.id, instances).await?),
            unknown => unknown.clone(),
        };
        return Ok(Lookup::Found(VmHost {
            id: candidate.id,
            name: candidate.name.clone().unwrap_or_default(),
            machine: candidate.host.as_ref().map(|machine| machine.system_id.clone()),
            address,
            project,
            certificate: fingerprint,
            maker: if ours { Maker::Ours } else { Maker::Foreign { trusted: trusted(candidate) } },
            reached: candidate.is_reached(),
            measured: candidate.is_measured(),
            place: Place {
                zone: candidate.zone.as_ref().map(|zone| zone.name.clone()).unwrap_or_default(),
                pool: candidate.pool.as_ref().map(|pool| pool.name.clone()).unwrap_or_default(),
            },
            strangers,
        }));
    }
    Ok(Lookup::Absent)
}

/// Whether LXD trusts the certificate of a VM host, as far as MAAS shows it: it has connected.
fn trusted(host: &maas_client::VmHost) -> Lookup<()> {
    if host.is_reached() {
        Lookup::Found(())
    } else {
        Lookup::Unknown("MAAS has not reached it; refresh it in MAAS".into())
    }
}

#[cfg(test)]
mod tests {
    use capmaas_core::plan::IN_FLIGHT;

    use super::*;

    #[test]
    fn s02_what_is_sent_at_the_last_moment_is_answered_before_its_intent_is_over() {
        let transport = maas_client::transport::answering(|_| http::Response::default());
        let client = Client::builder("http://maas.test/MAAS", "a:b:c").transport(transport).build().unwrap();
        assert!(SEND + client.write_deadline() < IN_FLIGHT.unsigned_abs());
    }
}
