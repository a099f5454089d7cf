//! The library's steps as lines of the checklist.

use lxd_initializer::{
    effect::EffectKind,
    plan::{Plan, Step},
};

use crate::Checklist;

/// The steps about LXD, each with a name and with what to do if it does not hold.
const STEPS: [(Step, &str, &str); 9] = [
    (
        Step::Lxd,
        "LXD",
        "install LXD (snap install lxd) and start it, or give its socket with --lxd-socket; run this as root",
    ),
    // The message itself says what is missing.
    (Step::Requirements, "Requirements", "see lxc info and lxc storage list for what this LXD has"),
    (
        Step::StoragePool,
        "Storage pool",
        "see lxc storage list; choose --storage-backend, --storage-size or --storage-pool",
    ),
    (
        Step::Bridge,
        "Bridge",
        "see lxc network list; create the bridge in MAAS before deploying, or choose --network-bridge",
    ),
    (Step::Project, "Project", "see lxc project show; choose --lxd-project"),
    (Step::Listener, "Listener", "see lxc config get core.https_address; choose --node-ip or --lxd-port"),
    (Step::Certificate, "Certificate", "remove the key pair, and a new one is created"),
    (Step::Trust, "Trust", "see lxc config trust list"),
    (Step::Reachable, "Reachable", "check for a firewall, and whether LXD runs: lxc info"),
];

/// Reports the state of each step, and which were done in this run.
pub(super) fn report(plan: &Plan, done: &[EffectKind], list: &mut Checklist) {
    for condition in &plan.conditions {
        let Some((_, subject, mend)) = STEPS.iter().find(|(step, ..)| *step == condition.step) else { continue };
        let found = in_flags(&condition.message);
        match condition.status {
            "True" if done.iter().any(|kind| step_of(*kind) == Some(condition.step)) => list.done(subject, found),
            "True" => list.good(subject, found),
            "False" => list.failed(subject, found, *mend),
            _ => list.open(subject, found),
        }
    }
}

/// The step that an effect serves.
pub(super) fn step_of(kind: EffectKind) -> Option<Step> {
    match kind {
        EffectKind::CreatePool => Some(Step::StoragePool),
        EffectKind::CreateProject => Some(Step::Project),
        EffectKind::Listen => Some(Step::Listener),
        EffectKind::Trust => Some(Step::Trust),
        EffectKind::Distrust => Some(Step::Earlier),
        EffectKind::StopListening
        | EffectKind::MakeKey
        | EffectKind::Register
        | EffectKind::Renew
        | EffectKind::Move
        | EffectKind::Refresh
        | EffectKind::Report => None,
    }
}

/// The library's messages name environment variables; here they are flags.
pub(super) fn in_flags(sentence: &str) -> String {
    [
        ("STORAGE_BACKEND", "--storage-backend"),
        ("STORAGE_SIZE", "--storage-size"),
        ("STORAGE_POOL", "--storage-pool"),
        ("NETWORK_BRIDGE", "--network-bridge"),
        ("NODE_IP, or wait for the Node's InternalIP", "--node-ip, or give the bridge an address"),
        ("NODE_IP", "--node-ip"),
        ("LXD_PORT", "--lxd-port"),
        ("LXD_PROJECT", "--lxd-project"),
        (", or keep this agent off the node", ""),
        ("this agent", "this program"),
    ]
    .into_iter()
    .fold(sentence.to_owned(), |text, (variable, flag)| text.replace(variable, flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_on_lxd_is_on_the_list_and_no_sentence_speaks_of_variables() {
        let about_lxd = Step::ALL.into_iter().filter(|step| *step > Step::Credentials && *step < Step::Registered);
        assert!(about_lxd.eq(STEPS.iter().map(|(step, ..)| *step)));
        assert_eq!(in_flags("set STORAGE_BACKEND=dir"), "set --storage-backend=dir");
    }
}
