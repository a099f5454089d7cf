//! The bridge of a bare-metal machine that becomes an LXD host: created after allocation and before deployment.

use capmaas_api::{Severity, reasons};

use super::Effect;
use super::decide::{Step, after, unseen};
use super::provisioning::Provisioning;
use super::status::Progress;
use crate::Lookup;
use crate::hosts::bridge::{self, BridgeStep};
use crate::maas;

impl Provisioning<'_> {
    /// The step that the bridge needs before the machine is deployed, if any. A VM gets no bridge.
    pub(super) fn bridge(&self, metal: &maas::Machine) -> Option<Step> {
        let around = match &self.observed.maas_cluster {
            Lookup::Found(around) => around,
            Lookup::Absent => return None,
            // Deployed without its bridge, the machine could never become an LXD host.
            Lookup::Unknown(why) => return Some(unseen(why)),
        };
        let desired = match &around.bridge {
            Ok(Some(desired)) if !metal.is_vm() => desired,
            Ok(_) => return None,
            Err(why) => return Some(unbridged(why)),
        };
        match bridge::step(desired, &metal.network) {
            BridgeStep::Fine => None,
            BridgeStep::Problem(why) => Some(unbridged(&format!("{} ({}): {why}", metal.hostname, metal.id))),
            BridgeStep::Make { parent } => {
                let message =
                    format!("the bridge {} is being created on {} ({})", desired.name, metal.hostname, metal.id);
                let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_DEPLOY_STARTED, message);
                let effect = Effect::CreateBridge { machine: metal.id.clone(), name: desired.name.clone(), parent };
                Some(Step::say(progress, after(0)).writing(self.journal.clone()).doing(effect))
            }
        }
    }
}

/// The machine stays Allocated until a person acts.
fn unbridged(why: &str) -> Step {
    let message = format!("the bridge for VMs cannot be created: {why}");
    Step::say(Progress::not_yet(Severity::Error, reasons::BRIDGE_FAILED, message), after(60))
}
