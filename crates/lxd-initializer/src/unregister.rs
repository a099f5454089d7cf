//! Takes the VM host out of MAAS when a person asks for it: once, and only where nothing can be lost by it (S11).

use anyhow::{Context, bail};
use maas_client::MachineFilter;

use crate::{
    agent::Agent,
    decide, names,
    observed::{Lookup, MaasFacts, Maker, VmHost},
    plan::State,
};

/// Whoever places VMs keeps away from a host that carries it.
const NO_MORE_VMS: &str = "maas-lxd-host-noschedule";

impl Agent {
    /// Unregisters this node's host, or says why not. What was not done is not half done: asking again goes on from there.
    pub async fn unregister(&mut self) -> anyhow::Result<String> {
        self.has_left().await?;
        let Some(host) = self.registered_by_this_agent().await? else {
            return Ok("MAAS has no VM host on this node: there is nothing to unregister".to_owned());
        };
        let VmHost { id, name, .. } = &host;
        let id = i64::try_from(*id)?;
        self.must_be_empty(&host).await?;
        let maas = self.client()?;
        maas.vm_hosts().add_tag(id, NO_MORE_VMS).await.context("the VM host cannot be closed to new VMs")?;
        // A MAAS that does not reach the host does not know what is on it.
        maas.vm_hosts().refresh(id).await.context("MAAS does not reach the VM host, so nothing was unregistered")?;
        self.must_be_empty(&host).await?;
        maas.vm_hosts().delete(id).await.context("MAAS did not unregister the VM host")?;
        Ok(format!(
            "VM host {name} ({id}) is no longer in MAAS; its LXD, with pool, project and trusted certificate, is as it was"
        ))
    }

    /// An agent that still looks after the node would register the host again.
    async fn has_left(&self) -> anyhow::Result<()> {
        let node = match self.cluster.node().await {
            Lookup::Found(node) => node,
            Lookup::Absent => bail!("there is no Node named {:?}", self.settings.node_name),
            Lookup::Unknown(why) => bail!("the Node cannot be read: {why}"),
        };
        let name = &self.settings.node_name;
        if !decide::told_to_leave(&node) {
            bail!(
                "the agent of this node is at work: tell it to stop with \"kubectl annotate node {name} {}=true\"",
                names::LEAVE
            );
        }
        if node.annotations.get(names::STATE).map(String::as_str) != Some(State::Left.as_str()) {
            bail!(
                "the agent of this node has not said yet that it stopped: wait until annotation {} is Left",
                names::STATE
            );
        }
        Ok(())
    }

    async fn registered_by_this_agent(&mut self) -> anyhow::Result<Option<VmHost>> {
        let (Lookup::Found(key), Lookup::Found(endpoint)) = self.credentials().await else {
            bail!(
                "without MAAS_API_KEY and MAAS_ENDPOINT this agent registered nothing: the manager unregisters its hosts itself"
            );
        };
        let (lxd, observed) = (self.local().await?, self.observe().await);
        self.forget();
        let view = match self.look_at_maas(&key, &endpoint, &lxd, &observed).await {
            MaasFacts::Here(view) => view,
            MaasFacts::NotAsked => bail!("LXD does not answer, so it is not known what is on it"),
            MaasFacts::Away(why) | MaasFacts::Denied(why) | MaasFacts::Unusable(why) => bail!("MAAS: {why}"),
            MaasFacts::NoVmHosts => bail!("this MAAS has no VM hosts any more (410 Gone)"),
            MaasFacts::TooOld(version) => bail!("MAAS {version} took no registration of this agent"),
        };
        match view.host {
            Lookup::Found(host) if host.maker == Maker::ThisAgent => Ok(Some(host)),
            Lookup::Found(host) => bail!(
                "somebody else registered this machine as VM host {} ({}): it is left to them",
                host.name,
                host.id
            ),
            Lookup::Absent => Ok(None),
            Lookup::Unknown(why) => bail!("the VM hosts of MAAS cannot be read: {why}"),
        }
    }

    /// No VM in MAAS and none in LXD, whoever they belong to: MAAS would forget them, locked ones too, and they would go on.
    async fn must_be_empty(&self, host: &VmHost) -> anyhow::Result<()> {
        let on_host = MachineFilter { vm_host: Some(host.name.clone()), ..MachineFilter::default() };
        let machines =
            self.client()?.machines().list(&on_host).await.context("MAAS cannot list the VMs of this host")?;
        let mut found: Vec<String> = machines
            .into_iter()
            .filter(|machine| machine.pod.as_ref().is_some_and(|pod| u64::try_from(pod.id) == Ok(host.id)))
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
