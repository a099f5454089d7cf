//! The requests as sent over the wire.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Script, json};
use maas_client::{
    Allocate, Deploy, Erase, Link, LinkMode, MachineFilter, MachineStatus, NewVmHost, Release, VmHostAuth,
};

const MACHINE: &str = r#"{"system_id": "abc123"}"#;
const API: &str = "http://maas.test:5240/MAAS/api/2.0";

fn form(body: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn a_request_is_signed_and_its_operation_is_in_the_query() {
    let script = Script::new([json(r#"{"username": "admin"}"#)]);
    script.client().whoami().await.unwrap();
    let seen = &script.seen()[0];
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("GET", format!("{API}/users/?op=whoami").as_str()));
    assert_eq!(
        seen.authorization,
        "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"canaryconsumer\", \
         oauth_token=\"canarytoken\", oauth_signature=\"%26canarysecret\", oauth_timestamp=\"1794767160\", \
         oauth_nonce=\"00000000000000000000000000000001\""
    );
    assert_eq!((seen.content_type.as_deref(), seen.body.as_str()), (None, ""));
}

#[tokio::test]
async fn go19_an_allocation_of_metal_excludes_every_kind_of_vm_and_sends_every_tag() {
    let script = Script::new([json(MACHINE)]);
    let wanted = Allocate {
        agent_name: Some("ns/m1".to_owned()),
        min_cpu_count: Some(4),
        min_memory_mib: Some(8192),
        tags: vec!["a".to_owned(), "b".to_owned()],
        zone: Some("az1".to_owned()),
        ..Allocate::metal()
    };
    script.client().machines().allocate(&wanted).await.unwrap();
    let seen = &script.seen()[0];
    assert_eq!(seen.uri, format!("{API}/machines/?op=allocate"));
    assert_eq!(seen.content_type.as_deref(), Some("application/x-www-form-urlencoded"));
    assert_eq!(
        form(&seen.body),
        pairs([
            ("agent_name", "ns/m1"),
            ("cpu_count", "4"),
            ("mem", "8192"),
            ("tags", "a"),
            ("tags", "b"),
            ("zone", "az1"),
            ("not_pod_type", "lxd"),
            ("not_pod_type", "virsh")
        ])
    );
}

#[tokio::test]
async fn user_data_travels_encoded() {
    let script = Script::new([json(MACHINE)]);
    let deploy = Deploy {
        distro_series: Some("custom/u-2204-k8s".to_owned()),
        user_data: Some(b"#cloud-config\n".to_vec().into()),
        ..Deploy::default()
    };
    script.client().machines().deploy("abc123", &deploy).await.unwrap();
    let seen = &script.seen()[0];
    assert_eq!(seen.uri, format!("{API}/machines/abc123/?op=deploy"));
    let expected = pairs([("distro_series", "custom/u-2204-k8s"), ("user_data", "I2Nsb3VkLWNvbmZpZwo=")]);
    assert_eq!(form(&seen.body), expected);
}

#[tokio::test]
async fn a_release_says_how_to_erase_only_if_asked() {
    for (erase, expected) in [
        (Erase::ServerDefault, ""),
        (Erase::None, "erase=false"),
        (Erase::Quick, "erase=true&quick_erase=true&secure_erase=false"),
        (Erase::Secure, "erase=true&quick_erase=false&secure_erase=true"),
        (Erase::Full, "erase=true&quick_erase=false&secure_erase=false"),
    ] {
        let script = Script::new([json(MACHINE)]);
        script.client().machines().release("abc123", &Release { erase, comment: None }).await.unwrap();
        assert_eq!(script.seen()[0].body, expected, "{erase:?}");
    }
}

#[tokio::test]
async fn a_vm_host_s_trust_password_goes_where_maas_reads_it() {
    let script = Script::new([json(r#"{"id": 1}"#)]);
    let host = NewVmHost {
        zone: Some("az1".to_owned()),
        tags: vec!["a".to_owned(), "b".to_owned()],
        cpu_over_commit_ratio: Some(1.5),
        ..NewVmHost::new("host-a", "10.0.0.1:8443", "maas", VmHostAuth::Password("s3cret".into()))
    };
    script.client().vm_hosts().create(&host).await.unwrap();
    assert_eq!(
        form(&script.seen()[0].body),
        pairs([
            ("type", "lxd"),
            ("name", "host-a"),
            ("power_address", "10.0.0.1:8443"),
            ("project", "maas"),
            ("zone", "az1"),
            ("cpu_over_commit_ratio", "1.5"),
            ("tags", "a,b"),
            ("password", "s3cret")
        ])
    );
}

#[tokio::test]
async fn go28_machines_are_asked_for_by_id_fifty_at_a_time() {
    let script = Script::new([json(&format!("[{MACHINE}]"))]);
    let ids: Vec<String> = (0..120).map(|number| format!("id{number:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(script.client().machines().by_ids(&ids).await.unwrap().len(), 3);
    let counts: Vec<usize> = script.seen().iter().map(|seen| seen.uri.matches("id=id").count()).collect();
    assert_eq!(counts, [50, 50, 20]);
    assert!(script.client().machines().by_ids(&[]).await.unwrap().is_empty(), "no ids are not all machines");
}

#[tokio::test]
async fn unregistering_a_vm_host_does_not_ask_for_its_vms_to_be_destroyed() {
    let script = Script::new([common::answer(204, "text/html", "")]);
    script.client().vm_hosts().delete(7).await.unwrap();
    assert_eq!(script.seen()[0].uri, format!("{API}/vm-hosts/7/"));
}

#[tokio::test]
async fn a_link_names_its_mode_and_subnet() {
    let script = Script::new([json(r#"{"id": 2}"#)]);
    let link = Link {
        ip_address: Some("10.0.0.9".parse().unwrap()),
        force: true,
        ..Link::new(LinkMode::Static, "cidr:10.0.0.0/24")
    };
    script.client().interfaces().link("abc123", 2, &link).await.unwrap();
    let seen = &script.seen()[0];
    assert_eq!(seen.uri, format!("{API}/nodes/abc123/interfaces/2/?op=link_subnet"));
    assert_eq!(
        form(&seen.body),
        pairs([("mode", "STATIC"), ("subnet", "cidr:10.0.0.0/24"), ("ip_address", "10.0.0.9"), ("force", "true")])
    );
}

#[tokio::test]
async fn a_single_state_is_a_filter_that_every_version_has() {
    let script = Script::new([json("[]")]);
    let filter = MachineFilter { statuses: vec![MachineStatus::Ready], ..MachineFilter::agent_name("k/1") };
    script.client().machines().list(&filter).await.unwrap();
    assert_eq!(script.seen()[0].uri, format!("{API}/machines/?agent_name=k%2F1&status=ready"));
}
