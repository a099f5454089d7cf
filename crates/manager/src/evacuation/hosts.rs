//! Which hosts are to be evacuated, and the tags that keep new VMs away from them.

use capmaas_api::MaasMachine;
use capmaas_api::names::{
    DELETE_FOR_MOVE_ANNOTATION, MAINTENANCE_ANNOTATION, MAINTENANCE_TAGGED_ANNOTATION, PAUSED_ANNOTATION,
};
use capmaas_core::evacuation::Cause;
use capmaas_core::evacuation::maintenance::{Step, VmHost, step};
use capmaas_core::placement::{Host, LEAVING_TAG, MAINTENANCE_TAG};
use capmaas_core::{Lookup, pause};
use kube::ResourceExt as _;
use serde_json::json;

use super::{Context, Tenant, World, cluster_of};
use crate::kubernetes::{self, ErrorKind, Guard, Key};
use crate::lxd_hosts::{Details, Survey, machine_of};

/// The hosts of a MAAS, and those of them that are to be evacuated.
pub(super) struct Closing {
    pub(super) survey: Survey,
    pub(super) hosts: Vec<ClosingHost>,
}

/// A host that is to be evacuated.
pub(super) struct ClosingHost {
    pub(super) host: Host,
    pub(super) cause: Cause,
    /// The MaasMachine that is proven to be this host.
    pub(super) object: Option<Key>,
}

pub(super) async fn closing(context: &Context, world: &World, tenant: &Tenant) -> maas_client::Result<Closing> {
    let now = context.clock.now();
    let objects = world.objects(context);
    let survey = context.lxd_hosts.survey(&tenant.identity, now, objects, Details::default()).await?;
    let mut hosts = Vec::new();
    for host in &survey.hosts {
        let object = object_of(world, tenant, host, &survey);
        if let Some(cause) = cause(context, host, object).await {
            hosts.push(ClosingHost { host: host.clone(), cause, object: object.map(Key::of) });
        }
    }
    Ok(Closing { survey, hosts })
}

/// The MaasMachine of a host: it holds the machine, and MAAS shows its stamp on it. What people write in a spec or an
/// annotation proves nothing (S7).
pub(super) fn object_of<'a>(
    world: &'a World,
    tenant: &Tenant,
    host: &Host,
    survey: &Survey,
) -> Option<&'a MaasMachine> {
    let id = host.system_id.as_deref()?;
    world.proven_holder(tenant, id, survey.stamps.get(id)?).map(AsRef::as_ref)
}

/// Why a host is to be evacuated, if it is.
async fn cause(context: &Context, host: &Host, object: Option<&MaasMachine>) -> Option<Cause> {
    if host.tags.contains(LEAVING_TAG) {
        return Some(Cause::Leaving);
    }
    if let Some(object) = object {
        let reason = object.annotations().get(MAINTENANCE_ANNOTATION);
        if is_served(context, object).await {
            if is_leaving(context, object).await {
                return Some(Cause::Leaving);
            }
            if let Some(reason) = reason {
                return Some(Cause::Maintenance(reason.trim().to_owned()));
            }
        }
        // The tag is ours and will be removed, if the object is paused once it is not any more.
        if reason.is_none() && noted(object) == Some(host.id) {
            return None;
        }
    }
    host.carries(MAINTENANCE_TAG).then_some(Cause::Tagged)
}

/// Whether an object may be acted on: neither it nor its Cluster is paused or being moved (S15).
async fn is_served(context: &Context, object: &MaasMachine) -> bool {
    if [PAUSED_ANNOTATION, DELETE_FOR_MOVE_ANNOTATION].iter().any(|name| object.annotations().contains_key(*name)) {
        return false;
    }
    match context.kubernetes.cluster(&cluster_of(object)).await {
        Ok(Some(cluster)) => pause::of_cluster(&cluster) == Lookup::Found(false),
        Ok(None) | Err(_) => false,
    }
}

/// Whether it or its Machine is being deleted.
async fn is_leaving(context: &Context, object: &MaasMachine) -> bool {
    if object.metadata.deletion_timestamp.is_some() {
        return true;
    }
    let machine = machine_of(context.kubernetes.as_ref(), object).await;
    machine.found().is_some_and(|machine| machine.metadata.deletion_timestamp.is_some())
}

/// The VM host whose tag we set.
fn noted(object: &MaasMachine) -> Option<i64> {
    object.annotations().get(MAINTENANCE_TAGGED_ANNOTATION).and_then(|id| id.parse().ok())
}

/// Takes the next step for the tags of hosts that are machines of this tenant's clusters. Returns whether anything was
/// changed.
pub(super) async fn close(context: &Context, world: &World, tenant: &Tenant, closing: &Closing) -> bool {
    let (now, maas) = (context.clock.now(), tenant.identity.endpoint());
    let may_try = |host: i64| context.memory.tag_trouble(maas, host, now).is_none();
    let may_note = |object: &MaasMachine| context.memory.note_trouble(object.metadata.uid.as_deref(), now).is_none();
    for leaving in closing.hosts.iter().filter(|it| it.cause == Cause::Leaving && !it.host.tags.contains(LEAVING_TAG)) {
        let ours = leaving.object.as_ref().and_then(|key| world.machines.get(key));
        if ours.is_some_and(|object| tenant.clusters.contains(&cluster_of(object))) && may_try(leaving.host.id) {
            return retag(context, tenant, leaving.host.id, LEAVING_TAG, true).await;
        }
    }
    for object in world.machines.values().filter(|object| tenant.clusters.contains(&cluster_of(object))) {
        let (wanted, noted) = (object.annotations().contains_key(MAINTENANCE_ANNOTATION), noted(object));
        let silent = !wanted && noted.is_none();
        if silent || object.metadata.deletion_timestamp.is_some() || !is_served(context, object).await {
            continue;
        }
        let host = closing.survey.hosts.iter().find(|host| {
            object_of(world, tenant, host, &closing.survey).is_some_and(|of| Key::of(of) == Key::of(object.as_ref()))
        });
        let vm_host = host.map(|host| VmHost { id: host.id, tagged: host.tags.contains(MAINTENANCE_TAG) });
        match step(wanted, noted, &vm_host.map_or(Lookup::Absent, Lookup::Found)) {
            Step::RecordTag(id) if may_note(object) && note(context, object, Some(id)).await => return true,
            Step::ForgetTag if may_note(object) && note(context, object, None).await => return true,
            Step::Tag(id) if may_try(id) => return retag(context, tenant, id, MAINTENANCE_TAG, true).await,
            Step::Untag(id) if may_try(id) => return retag(context, tenant, id, MAINTENANCE_TAG, false).await,
            // One that cannot be changed now does not keep the others from it.
            Step::Nothing | Step::Wait(_) | Step::Tag(_) | Step::Untag(_) | Step::RecordTag(_) | Step::ForgetTag => {}
        }
    }
    false
}

/// Journals which VM host's tag is ours, on the object as it was observed. Returns whether it was changed.
async fn note(context: &Context, object: &MaasMachine, vm_host: Option<i64>) -> bool {
    let value = vm_host.map(|id| id.to_string());
    let patch = json!({ "metadata": { "annotations": { MAINTENANCE_TAGGED_ANNOTATION: value } } });
    let (key, guard) = (Key::of(object), Guard::of(object));
    match kubernetes::patch::<MaasMachine>(context.kubernetes.as_ref(), &key, &guard, patch).await {
        Ok(_) => true,
        Err(error) if matches!(error.kind, ErrorKind::Conflict | ErrorKind::NotFound) => {
            tracing::info!(machine = %key, %error, "not annotated; the next pass tries again");
            false
        }
        Err(error) => {
            tracing::warn!(machine = %key, %error, "not annotated; others come first for a while");
            let why = format!("its MaasMachine does not take the annotation {MAINTENANCE_TAGGED_ANNOTATION}: {error}");
            context.memory.note_refused(&object.uid().unwrap_or_default(), why, context.clock.now());
            false
        }
    }
}

async fn retag(context: &Context, tenant: &Tenant, vm_host: i64, tag: &str, on: bool) -> bool {
    if context.fence.check().is_err() {
        return false;
    }
    let hosts = tenant.identity.client.vm_hosts();
    let answer = if on { hosts.add_tag(vm_host, tag).await } else { hosts.remove_tag(vm_host, tag).await };
    // VM placement sees the change immediately.
    context.lxd_hosts.forget(&tenant.identity).await;
    match answer {
        Ok(_) => tracing::info!(vm_host, tag, on, "the tag of an LXD host was changed"),
        Err(error) => {
            tracing::warn!(vm_host, tag, on, %error, "the tag of an LXD host could not be changed");
            let why = format!("MAAS does not accept the tag {tag}: {error}");
            context.memory.tag_refused(tenant.identity.endpoint(), vm_host, why, context.clock.now());
        }
    }
    true
}
