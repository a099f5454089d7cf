//! Boot resources.

use serde_json::json;

use super::{
    super::{
        Call, render,
        reply::Reply,
        surface::{BootResourcesAction, Kept},
    },
    list, numeric,
};
use crate::{
    model::{Model, Outcome, Refusal, boot::Upload, db::Image},
    version::Change,
};

pub(crate) fn image(model: &mut Model, call: &Call, action: Kept) -> Outcome<Reply> {
    let id = numeric(call.parameter(0), "BootResource")?;
    let image = model.db.images.get(&id).ok_or(Refusal::NotFound("BootResource"))?;
    match action {
        Kept::Read => Ok(Reply::json(&render::image(model, image, true))),
        Kept::Delete => {
            call.require_admin()?;
            model.db.images.remove(&id);
            Ok(Reply::deleted())
        }
    }
}

pub(crate) fn images(model: &mut Model, call: &Call, action: BootResourcesAction) -> Outcome<Reply> {
    match action {
        BootResourcesAction::Read => {
            let wanted = call.query.get("type").filter(|text| !text.is_empty());
            let kinds: &[&str] = if model.version.has(Change::NoGeneratedImages) {
                &["synced", "uploaded"]
            } else {
                &["synced", "generated", "uploaded"]
            };
            if let Some(kind) = wanted.filter(|kind| *kind != "all" && !kinds.contains(kind)) {
                let quoted: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
                return Err(Refusal::bad_request(format!(
                    "'{kind}' is not a valid boot resource type. Available types: [{}]",
                    quoted.join(", ")
                )));
            }
            let mut images: Vec<&Image> = model
                .db
                .images
                .values()
                .filter(|image| match wanted {
                    Some("uploaded") => image.uploaded,
                    Some("synced") => !image.uploaded,
                    Some("generated") => false,
                    _ => true,
                })
                .collect();
            images.sort_by(|a, b| (a.uploaded, &a.series).cmp(&(b.uploaded, &b.series)));
            list(images.into_iter().map(|image| render::image(model, image, false)).collect())
        }
        BootResourcesAction::IsImporting => Ok(Reply::json(&json!(false))),
        BootResourcesAction::Import | BootResourcesAction::StopImport => {
            call.require_admin()?;
            let words = if action == BootResourcesAction::Import {
                "Import of boot resources started"
            } else {
                "Import of boot resources is being stopped"
            };
            Ok(Reply::raw("text/plain", words))
        }
        BootResourcesAction::Create => {
            call.require_admin()?;
            let form = &call.body;
            let upload = Upload {
                name: form.text("name"),
                architecture: form.text("architecture"),
                sha256: form.text("sha256"),
                size: form.text("size"),
                title: form.text("title"),
                filetype: form.text("filetype"),
                content: form.files.iter().find(|file| file.name == "content").map(|file| file.content.clone()),
            };
            let id = model.upload_image(&upload)?;
            let image = model.db.images.get(&id).ok_or(Refusal::NotFound("BootResource"))?;
            Ok(Reply::created(&render::image(model, image, true)))
        }
    }
}
