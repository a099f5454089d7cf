//! Any answer to any request: no panic, and a 404 means absence only in MAAS's own words.

#![no_main]

use bytes::Bytes;
use http::Response;
use libfuzzer_sys::fuzz_target;
use maas_client::transport::answering;
use maas_client::{Allocate, Client, DnsFilter, EventQuery, IpAddressFilter, MachineFilter, RetryPolicy};

const STATUSES: [u16; 16] = [200, 201, 204, 301, 400, 401, 403, 404, 409, 410, 413, 429, 500, 502, 503, 504];
const TYPES: [&str; 4] = ["application/json; charset=utf-8", "text/plain; charset=utf-8", "text/html", ""];

fuzz_target!(|data: &[u8]| {
    let [status, content_type, body @ ..] = data else { return };
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let content_type = TYPES[usize::from(*content_type) % TYPES.len()];
    let body = Bytes::copy_from_slice(body);
    let absent = body.windows(20).any(|window| window == b"matches the given qu") || body.starts_with(b"Not Found");
    let transport = answering(move |_| {
        let response = Response::builder().status(status).header("content-type", content_type);
        response.body(body.clone()).unwrap_or_default()
    });
    let client = Client::builder("http://maas.test/MAAS", "a:b:c").transport(transport).retry(RetryPolicy::never());
    let Ok(client) = client.build() else { return };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build() else {
        return;
    };
    runtime.block_on(async {
        let read = client.machines().read("abc123").await;
        assert!(absent || !read.is_err_and(|error| error.is_not_found()));
        let _ = client.version().await;
        let _ = client.whoami().await;
        let _ = client.machines().list(&MachineFilter::default()).await;
        let _ = client.machines().allocate(&Allocate::metal()).await;
        let _ = client.machines().delete("abc123").await;
        let _ = client.machines().query_power_state("abc123").await;
        let _ = client.vm_hosts().list().await;
        let _ = client.vm_hosts().parameters(1).await;
        let _ = client.dns_resources().list(&DnsFilter::default()).await;
        let _ = client.ip_addresses().list(&IpAddressFilter::default()).await;
        let _ = client.interfaces().unlink("abc123", 1, 1).await;
        let _ = client.boot_resources().list(None).await;
        let _ = client.subnets().list().await;
        let _ = client.events().newest().await;
        let _ = client.events().query(&EventQuery::default()).await;
    });
});
