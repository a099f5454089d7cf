//! The plan for a `MaasMachine`.

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

pub type Plan = plan::Plan<Effect, Patch, MaasMachineStatus>;

/// The outcome of an effect. `Done` holds the machine, if the answer contains it.
pub type Outcome = plan::Outcome<Option<Box<maas::Machine>>>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// The journal to store before the effect; `None` leaves it as it is.
    pub journal: Option<Journal>,
    /// The journal that the next pass starts with, if it follows at once. MAAS shows everything new in it again, so it is not
    /// stored on its own.
    pub recalled: Option<Journal>,
    /// The MAAS identity to record on the object; `None` leaves it as it is.
    pub identity: Option<String>,
    /// When the machine's registration as VM host was requested, if that has to be rewritten.
    pub asked: Option<Timestamp>,
    /// Set for a control plane machine that a person created by hand, with the label on its Machine only. Controllers that read
    /// only MaasMachines (the MaasCluster's, VM placement, spreading) need the same label here, before anything else is done.
    pub control_plane: bool,
    pub spec: SpecPatch,
}

impl Plan {
    /// The journal after this plan, if it changes.
    pub fn journal(&self) -> Option<&Journal> {
        self.patch.journal.as_ref().or(self.patch.recalled.as_ref())
    }
}

/// Spec fields, written together. The zone is not among them: Cluster API copies `spec.failureDomain` to the Machine, where it is
/// desired state, and the Machine would then differ from its MachineDeployment. The status has the zone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecPatch {
    /// Written once.
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
