//! Removes the VM host from MAAS on request: once, and only if nothing can be lost by it (S11).

use std::fs::File;

use anyhow::{Context, bail};
use capmaas_core::registration;
use jiff::Timestamp;
use maas_client::MachineFilter;

use crate::{
    agent::Agent,
    alive, decide, intent, keys, names,
    observed::{Lookup, MaasFacts, Maker, NodeFacts, VmHost},
    plan::State,
};

/// The tag that keeps VM placement away from a host.
const NO_MORE_VMS: &str = "maas-lxd-host-noschedule";

impl Agent {
    /// Unregisters this node's host, or reports why not. It can be repeated: the next call continues where this one
    /// stopped.
    pub async fn unregister(&mut self) -> anyhow::Result<String> {
        let node = self.cluster.node().await;
        // Held to the end: no agent of this node starts in the meantime.
        let dead = self.stopped(&node)?;
        // Before the VM hosts: what lands after that is not in the answer.
        let intent = intent::read(&self.settings.state_dir);
        let Some(host) = self.registered_by_this_agent().await? else {
            return nothing_to_unregister(&intent, Timestamp::now());
        };
        let VmHost { id, name, .. } = &host;
        let id = *id;
        self.must_be_empty(&host).await?;
        let maas = self.client()?;
        maas.vm_hosts().add_tag(id, NO_MORE_VMS).await.context("cannot close the VM host to new VMs")?;
        // A MAAS that does not reach the host does not know what is on it.
        maas.vm_hosts().refresh(id).await.context("MAAS cannot reach the VM host, so nothing was unregistered")?;
        self.must_be_empty(&host).await?;
        alive::mark_unregistered(&self.settings.state_dir)
            .context("cannot record that the VM host is to stay unregistered")?;
        maas.vm_hosts().delete(id).await.context("MAAS did not unregister the VM host")?;
        // What was in flight has landed. If the intent cannot be removed, it merely expires.
        let _ = intent::forget(&self.settings.state_dir);
        let mut said = format!(
            "VM host {name} ({id}) is no longer in MAAS; its LXD, with pool, project and trusted certificate, is as it was"
        );
        if dead.is_some() && node.found().is_none() {
            said +=
                "; no Node asks an agent to leave, so do not start one here again: it would register the host again";
        }
        Ok(said)
    }

    /// S11: the agent was asked to stop and has stopped, by its own report or because it is dead. A running agent would
    /// register the host again.
    fn stopped(&self, node: &Lookup<NodeFacts>) -> anyhow::Result<Option<File>> {
        let name = &self.settings.node_name;
        let what_is_known = match node {
            Lookup::Found(node) if !decide::asked_to_leave(node) => bail!(
                "the agent of this node is running: stop it with \"kubectl annotate node {name} {}=true\"",
                names::LEAVE
            ),
            Lookup::Found(node) => match node.annotations.get(names::STATE).map(String::as_str) {
                Some(state) if state == State::Left.as_str() => return Ok(None),
                Some(state) => format!("its annotation {} is {state}, not Left", names::STATE),
                None => format!("there is no annotation {}", names::STATE),
            },
            Lookup::Absent => format!("there is no Node named {name:?}"),
            Lookup::Unknown(why) => format!("the Node cannot be read: {why}"),
        };
        let folder = self.settings.state_dir.display();
        // The lock is meaningful only in the directory that the agent uses.
        if !matches!(keys::load(&self.settings.state_dir), Lookup::Found(_)) {
            bail!(
                "the agent of this node has not reported that it stopped ({what_is_known}), and whether it runs cannot be determined: \
                 {folder} does not hold its key pair; wait for the agent, or run this with its STATE_DIR"
            );
        }
        match alive::alone(&self.settings.state_dir) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => bail!(
                "the agent of this node runs and has not reported yet that it stopped ({what_is_known}): wait a minute, or stop it, \
                 and run this again"
            ),
            Err(error) => bail!(
                "the agent of this node has not reported that it stopped ({what_is_known}), and whether it runs cannot be determined: \
                 {folder}: {error}"
            ),
        }
    }

    async fn registered_by_this_agent(&mut self) -> anyhow::Result<Option<VmHost>> {
        let (Lookup::Found(key), Lookup::Found(endpoint)) = self.credentials().await else {
            bail!(
                "without MAAS_API_KEY and MAAS_ENDPOINT this agent registered nothing: the manager unregisters its hosts itself"
            );
        };
        let (lxd, mut observed) = (self.local().await?, self.observe().await);
        self.forget();
        // The machine can be identified without the Node, by name and address.
        if observed.node.found().is_none() {
            observed.node = Lookup::Found(NodeFacts::default());
        }
        let view = match self.observe_maas(&key, &endpoint, &lxd, &observed).await {
            MaasFacts::Here(view) => view,
            MaasFacts::NotAsked => bail!("LXD does not answer, so it is not known what is on it"),
            MaasFacts::Away(why) | MaasFacts::Denied(why) | MaasFacts::Unusable(why) => bail!("MAAS: {why}"),
            MaasFacts::NoVmHosts => bail!("this MAAS has no VM hosts any more (410 Gone)"),
            MaasFacts::TooOld(version) => bail!("MAAS {version} does not support the registration by this agent"),
        };
        match view.host {
            Lookup::Found(host) if host.maker == Maker::Ours => Ok(Some(host)),
            Lookup::Found(host) => {
                bail!("somebody else registered this machine as VM host {} ({}): it is left alone", host.name, host.id)
            }
            Lookup::Absent => Ok(None),
            Lookup::Unknown(why) => {
                bail!("the VM hosts of MAAS cannot be read: {why} (without a readable Node, set NODE_NAME and NODE_IP)")
            }
        }
    }

    /// No VM in MAAS and none in LXD, whoever owns them: MAAS would forget them, locked ones too, and they would keep
    /// running.
    async fn must_be_empty(&self, host: &VmHost) -> anyhow::Result<()> {
        let on_host = MachineFilter { vm_host: Some(host.name.clone()), ..MachineFilter::default() };
        let machines =
            self.client()?.machines().list(&on_host).await.context("MAAS cannot list the VMs of this host")?;
        let mut found: Vec<String> = machines
            .into_iter()
            .filter(|machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id))
            .map(|machine| machine.hostname.unwrap_or(machine.system_id))
            .collect();
        let instances = self.local().await?.instances(&host.project).await;
        let instances = instances.context("LXD cannot list the instances of the project")?;
        found.extend(instances.into_iter().map(|instance| instance.name));
        found.sort();
        found.dedup();
        if !found.is_empty() {
            bail!("VM host {} ({}) still has VMs ({}): nothing was unregistered", host.name, host.id, found.join(", "));
        }
        Ok(())
    }
}

/// MAAS shows no VM host on this node; one may still appear (S2).
fn nothing_to_unregister(intent: &Lookup<Timestamp>, now: Timestamp) -> anyhow::Result<String> {
    match intent {
        Lookup::Found(sent) if registration::may_land(*sent, now) => {
            bail!("a registration was sent a moment ago and may still take effect: run this again in three minutes")
        }
        Lookup::Unknown(why) => bail!("it cannot be determined whether a registration was sent a moment ago: {why}"),
        Lookup::Found(_) | Lookup::Absent => {
            Ok("MAAS has no VM host on this node: there is nothing to unregister".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn s02_nothing_is_to_be_unregistered_only_once_no_registration_can_land_any_more() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let said = |intent| match nothing_to_unregister(&intent, now) {
            Ok(said) => said,
            Err(error) => format!("{error:#}"),
        };
        let sent = |seconds| Lookup::Found(now - SignedDuration::from_secs(seconds));
        for (intent, words) in [
            (sent(0), "may still take effect: run this again in three minutes"),
            (sent(149), "may still take effect"),
            (sent(150), "there is nothing to unregister"),
            (Lookup::Absent, "there is nothing to unregister"),
            (Lookup::Unknown("remove it".into()), "cannot be determined whether a registration was sent a moment ago"),
        ] {
            let said = said(intent);
            assert!(said.contains(words), "{said:?} lacks {words:?}");
        }
    }
}
