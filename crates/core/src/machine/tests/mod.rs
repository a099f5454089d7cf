//! Decisions about machines, as tables and as properties over arbitrary observations.

mod arbitrary;
mod debt;
mod fixture;
mod hosting;
mod kind;
mod node_labels;
mod odd;
mod off;
mod ownership;
mod properties;
mod provisioning;
mod releasing;
mod running;
mod standalone;
mod stored;
mod surplus;
mod table;
mod vm;
mod vm_table;

/// Whether a status is written, and whether nothing else happens, for a machine of this Cluster that could be requested.
pub(crate) fn under_cluster(cluster: &capmaas_api::capi::Cluster) -> (bool, bool) {
    let mut observed = fixture::fresh();
    let ready = observed.cluster.found().expect("a Cluster").status.clone();
    observed.cluster = crate::Lookup::Found(capmaas_api::capi::Cluster { status: ready, ..cluster.clone() });
    let plan = super::decide(&observed, fixture::now());
    (
        plan.status.is_some(),
        plan.effect.is_none() && plan.patch.journal.is_none() && plan.finalizer == crate::plan::Finalizer::Keep,
    )
}
