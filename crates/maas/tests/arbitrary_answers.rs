//! Whatever the answer, the client neither panics nor trusts it. `fuzz/` contains the long form of this.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::{Script, builder};
use http::Response;
use maas_client::{
    Allocate, Client, DnsFilter, EventQuery, IpAddressFilter, Machine, MachineFilter, RetryPolicy, VmHost,
};
use proptest::prelude::*;
use serde_json::Value;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

fn client(response: Response<Bytes>) -> Client {
    builder(Script::new([response]).transport()).retry(RetryPolicy::never()).build().unwrap()
}

/// Makes every call; the results do not matter, only that there are results.
async fn ask_everything(client: &Client) {
    let _ = client.version().await;
    let _ = client.capabilities().await;
    let _ = client.whoami().await;
    let _ = client.machines().list(&MachineFilter::default()).await;
    let _ = client.machines().read("a").await;
    let _ = client.machines().allocate(&Allocate::metal()).await;
    let _ = client.machines().delete("a").await;
    let _ = client.machines().query_power_state("a").await;
    let _ = client.vm_hosts().list().await;
    let _ = client.vm_hosts().parameters(1).await;
    let _ = client.dns_resources().list(&DnsFilter::default()).await;
    let _ = client.ip_addresses().list(&IpAddressFilter::default()).await;
    let _ = client.interfaces().unlink("a", 1, 1).await;
    let _ = client.boot_resources().list(None).await;
    let _ = client.subnets().list().await;
    let _ = client.events().newest().await;
    let _ = client.events().query(&EventQuery::default()).await;
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("system_id"),
        Just("id"),
        Just("status"),
        Just("events"),
        Just("version"),
        Just("name"),
        Just("pod"),
        Just("zone"),
        Just("interface_set"),
        Just("links"),
        Just("ip_addresses"),
        Just("capabilities"),
        Just("total"),
        Just("__all__"),
        Just("owner_data"),
        Just("state"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_status() -> impl Strategy<Value = u16> {
    prop_oneof![Just(200), Just(201), Just(204), Just(301), Just(400), Just(401), Just(404), Just(409), 300_u16..600]
}

fn any_content_type() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("application/json"), Just("text/plain; charset=utf-8"), Just("text/html"), Just(""), Just(";;")]
}

fn response(status: u16, content_type: &str, body: Vec<u8>) -> Response<Bytes> {
    let response = Response::builder().status(status).header("content-type", content_type);
    response.header("retry-after", "1").body(body.into()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_are_survived(
        status in any_status(),
        content_type in any_content_type(),
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        run(ask_everything(&client(response(status, content_type, body))));
    }

    #[test]
    fn arbitrary_json_is_survived(status in any_status(), body in any_json()) {
        run(ask_everything(&client(response(status, "application/json", body.to_string().into_bytes()))));
    }

    #[test]
    fn s01_nothing_but_maas_s_own_sentence_is_taken_for_absence(body in ".{0,60}", content_type in any_content_type()) {
        prop_assume!(!body.contains("matches the given query"));
        let answer = response(404, content_type, body.into_bytes());
        let error = run(client(answer).machines().read("abc123")).unwrap_err();
        prop_assert!(!error.is_not_found(), "{error}");
    }

    /// One field of a real machine is replaced by anything: the machine still decodes and keeps its identity.
    #[test]
    fn a_machine_with_one_strange_field_is_still_that_machine(at in any::<prop::sample::Index>(), strange in any_json()) {
        let mut machine = common::recordings::numbered("960").body.clone();
        let fields = machine.as_object_mut().unwrap();
        let keys: Vec<String> = fields.keys().filter(|key| *key != "system_id").cloned().collect();
        fields.insert(at.get(&keys).clone(), strange);
        let machine: Machine = serde_json::from_value(machine).unwrap();
        prop_assert_eq!(machine.system_id, "4ffqha");
    }

    #[test]
    fn a_vm_host_with_one_strange_field_is_still_that_host(at in any::<prop::sample::Index>(), strange in any_json()) {
        let mut host = common::recordings::numbered("1107").body.clone();
        let fields = host.as_object_mut().unwrap();
        let keys: Vec<String> = fields.keys().filter(|key| *key != "id").cloned().collect();
        fields.insert(at.get(&keys).clone(), strange);
        let host: VmHost = serde_json::from_value(host).unwrap();
        prop_assert_eq!(host.id, 16);
    }
}
