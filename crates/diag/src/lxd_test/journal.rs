//! Journals what is about to be created in LXD, so that `--cleanup` recognizes it even after a crash.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request};
use lxd_client::{BoxError, Fingerprint, Transport};
use lxd_initializer::agent::LxdHook;
use serde_json::Value;
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::kept::{Kept, Made};

/// Intercepts the library's requests to LXD.
#[derive(Clone)]
pub(super) struct Journal {
    kept: Kept,
    made: Arc<Mutex<Made>>,
}

impl Journal {
    pub(super) fn new(kept: Kept, made: Made) -> Self {
        Self { kept, made: Arc::new(Mutex::new(made)) }
    }

    pub(super) fn made(&self) -> Made {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn hook(&self) -> LxdHook {
        let journal = self.clone();
        Arc::new(move |inner: Transport| {
            let journal = journal.clone();
            BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
                let noted = journal.note(&request);
                let inner = inner.clone();
                async move {
                    // What cannot be journaled is not done.
                    noted.map_err(|error| BoxError::from(format!("{error:#}")))?;
                    inner.oneshot(request).await
                }
            }))
        })
    }

    fn note(&self, request: &Request<Bytes>) -> anyhow::Result<()> {
        if request.method() == Method::GET {
            return Ok(());
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = made.clone();
        write_down(&mut next, request);
        if next != *made {
            self.kept.keep_made(&next)?;
            *made = next;
        }
        Ok(())
    }
}

fn write_down(made: &mut Made, request: &Request<Bytes>) {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let name = || body["name"].as_str().map(str::to_owned);
    match (request.method().as_str(), request.uri().path()) {
        ("POST", "/1.0/storage-pools") => made.storage_pool = name(),
        ("POST", "/1.0/projects") => made.project = name(),
        ("POST", "/1.0/certificates") => {
            let pem = body["certificate"]
                .as_str()
                .map(|base64| format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n"));
            made.certificate = pem.and_then(|pem| Fingerprint::of_pem(&pem).ok());
        }
        ("PATCH", "/1.0") => {
            let address = body["config"]["core.https_address"].as_str();
            made.listener = address.filter(|address| !address.is_empty()).map(str::to_owned);
        }
        _ => {}
    }
}
