//! What shall happen about a `MaasMachine`.

use std::collections::BTreeMap;

use capmaas_api::MaasMachineStatus;
use capmaas_api::names::CONTROL_PLANE_LABEL;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::effect::Effect;
use super::journal::{JOURNAL_ANNOTATION, Journal};
use crate::credentials::IDENTITY_ANNOTATION;
use crate::hosts::leaving::ASKED_ANNOTATION;
use crate::{maas, plan};

/// Everything that happens in one pass over a machine.
pub type Plan = plan::Plan<Effect, Patch, MaasMachineStatus>;

/// How an effect ended. Done, the machine is as the answer shows it, where it does.
pub type Outcome = plan::Outcome<Option<Box<maas::Machine>>>;

/// A change of metadata and spec.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// The journal to store before the effect; `None` if it stays.
    pub journal: Option<Journal>,
    /// The journal that the next pass begins with, if it follows at once. All that is new in it shows in MAAS again, so it is not
    /// stored by itself.
    pub recalled: Option<Journal>,
    /// The identity to note on the object; `None` if it stays.
    pub identity: Option<String>,
    /// When the machine was asked to be registered as VM host, if that is to be written anew.
    pub asked: Option<Timestamp>,
    /// A control plane machine that somebody made by hand, with the label on its Machine alone. Everybody who looks at MaasMachines
    /// only (the MaasCluster, those who place VMs and spread machines) is told by the same label here, before anything is done.
    pub control_plane: bool,
    /// What to fill into the spec.
    pub spec: SpecPatch,
}

impl Plan {
    /// The journal from now on, where it changes.
    pub fn journal(&self) -> Option<&Journal> {
        self.patch.journal.as_ref().or(self.patch.recalled.as_ref())
    }
}

/// What to fill into the spec, together. Not the zone: Cluster API copies a `spec.failureDomain` over the Machine's, where it is a
/// wish, and the Machine would then differ from the MachineDeployment that it was made from. The status tells the zone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecPatch {
    /// The provider ID, written once.
    pub provider_id: Option<String>,
    pub system_id: Option<String>,
}

impl plan::Patch for Patch {
    fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        let journal = self.journal.as_ref().map(Journal::text);
        let asked = self.asked.as_ref().map(ToString::to_string);
        let all =
            [(JOURNAL_ANNOTATION, journal), (IDENTITY_ANNOTATION, self.identity.clone()), (ASKED_ANNOTATION, asked)];
        all.into_iter().filter(|(_, value)| value.is_some()).collect()
    }

    fn labels(&self) -> BTreeMap<&'static str, String> {
        self.control_plane.then(|| (CONTROL_PLANE_LABEL, String::new())).into_iter().collect()
    }

    fn spec(&self) -> Map<String, Value> {
        let SpecPatch { provider_id, system_id } = &self.spec;
        let all = [("providerID", provider_id), ("systemID", system_id)];
        let known = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), known(value)?.into()))).collect()
    }
}
