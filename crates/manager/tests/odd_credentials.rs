//! Invalid credentials of a cluster, and the message for each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use capmaas_api::{MaasCluster, reasons};
use capmaas_manager::clock::Clock;
use capmaas_manager::identity::{Identities, MemoryCredentialCopies, Settings, over_network};
use capmaas_manager::kubernetes::MemoryKubernetes;
use capmaas_manager::lease::Fence;
use capmaas_manager::metrics::Metrics;
use serde_json::{Value, json};

const KEY: &str = "consumer:token:CANARYsecret";
const ENDPOINT: &str = "https://maas.example:5240/MAAS";

/// The content of the Secret `maas` in the cluster's namespace; `null` if there is none.
fn secret(endpoint: &str, key: &str, authority: Option<&str>) -> Value {
    let mut data = json!({ "maasEndpoint": endpoint, "apiKey": key });
    if let Some(authority) = authority {
        data["ca.crt"] = json!(authority);
    }
    data
}

async fn sentence(data: &Value, reference: &Value) -> String {
    let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
    let port = MemoryKubernetes::new(clock.clone());
    if !data.is_null() {
        let metadata = json!({ "name": "maas", "namespace": "team" });
        port.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data })).unwrap();
    }
    let cluster: MaasCluster = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": { "name": "c1", "namespace": "team" }, "spec": { "dnsDomain": "maas", "identityRef": reference },
    }))
    .unwrap();
    let settings = Settings { namespace: "capmaas-system".to_owned(), ..Settings::default() };
    let connect = over_network(4, Metrics::default(), Fence::open());
    let identities =
        Identities::new(Arc::new(port), Arc::new(MemoryCredentialCopies::default()), clock, settings, connect);
    let problem = identities.check(&cluster).await.unwrap_err();
    assert_eq!(problem.reason, reasons::CREDENTIALS_INVALID, "{}", problem.message);
    problem.message
}

#[tokio::test]
async fn every_odd_credential_gets_a_sentence_that_names_it_and_shows_no_secret() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (own, elsewhere) = (json!({ "name": "maas" }), json!({ "name": "maas", "namespace": "kube-system" }));
    let quoted = format!("\"{KEY}\"");
    for (data, reference, words) in [
        (
            Value::Null,
            &own,
            "Secret team/maas of spec.identityRef does not exist; create it with keys maasEndpoint and apiKey",
        ),
        (secret(ENDPOINT, KEY, None), &elsewhere, "--identity-namespaces"),
        (secret(ENDPOINT, &quoted, None), &own, "stray space, quote or line break"),
        (secret(ENDPOINT, "consumer:CANARYsecret", None), &own, "three parts joined by colons"),
        (secret("https://bob:CANARY@maas.example/MAAS", KEY, None), &own, "API key instead"),
        (secret("maas.example:5240/MAAS", KEY, None), &own, "no scheme"),
        (secret("https://maas.example/MAAS/api/1.0/", KEY, None), &own, "only 2.0 exists"),
        (secret(ENDPOINT, KEY, Some("CANARY garbage")), &own, "no PEM bundle of certificates"),
    ] {
        let said = sentence(&data, reference).await;
        assert!(said.contains(words), "{words}: {said}");
        assert!(!said.contains("CANARY"), "s21: {said}");
    }
}
