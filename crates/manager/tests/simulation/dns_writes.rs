//! What clusters write to MAAS's DNS and what is refused. The simulator's ledger does not have what a request says, and a
//! record may be given other addresses at any time.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request};
use maas_client::transport::Transport;
use tower::ServiceExt as _;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DnsWrite {
    Sent(String),
    /// MAAS refused it, or did not answer.
    Failed(String),
}

/// Clones share what was written.
#[derive(Clone, Default)]
pub(crate) struct DnsWrites(Arc<Mutex<Vec<DnsWrite>>>);

impl DnsWrites {
    /// A transport to MAAS on which they are noted.
    pub(crate) fn on_the_way(&self, transport: Transport) -> Transport {
        let writes = self.clone();
        Transport::new(tower::service_fn(move |request: Request<Bytes>| {
            let (writes, transport) = (writes.clone(), transport.clone());
            let counts = request.method() != Method::GET && request.uri().path().contains("/dnsresources/");
            let (method, uri, body) = (request.method(), request.uri(), String::from_utf8_lossy(request.body()));
            let told = counts.then(|| format!("{method} {uri} {body}"));
            async move {
                writes.note(told.clone().map(DnsWrite::Sent));
                let answer = transport.oneshot(request).await;
                let done = answer.as_ref().is_ok_and(|answer| answer.status().is_success());
                writes.note(told.filter(|_| !done).map(DnsWrite::Failed));
                answer
            }
        }))
    }

    fn note(&self, write: Option<DnsWrite>) {
        self.0.lock().unwrap().extend(write);
    }

    /// Those since the last call.
    pub(crate) fn take(&self) -> Vec<DnsWrite> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
