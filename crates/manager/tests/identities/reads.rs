//! Batched reads.

use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage, plain};

#[tokio::test(start_paused = true)]
async fn reads_that_come_together_are_one_request_and_what_a_list_hides_is_asked_for_by_itself() {
    let stage = Stage::bare();
    let machines: Vec<Value> = (0..7)
        .map(|n| json!({"machine": {"system_id": format!("aaaaa{n}"), "hostname": format!("m{n}"), "status": "Ready"}}))
        .collect();
    let made = stage.one.control().arrange(&serde_json::from_value::<Vec<_>>(json!(machines)).unwrap()).unwrap();
    assert_eq!(made.len(), 7);
    stage.documented("http://one/MAAS", ADMIN);
    let identity = stage.found(&plain()).await;
    stage.one.control().clear_ledger();

    let ids: Vec<String> = (0..7).map(|n| format!("aaaaa{n}")).chain(["zzzzzz".to_owned()]).collect();
    let read = futures::future::join_all(ids.iter().map(|id| identity.machines.read(id))).await;
    for (id, machine) in ids.iter().zip(&read).take(7) {
        assert_eq!(machine.as_ref().unwrap().system_id, *id);
    }
    assert!(read[7].as_ref().unwrap_err().is_not_found());
    assert_eq!(stage.one.control().ledger(None).len(), 2, "one list, and one question about the id that is not in it");
}

#[tokio::test(start_paused = true)]
async fn s01_one_absurd_id_fails_no_read_but_its_own_and_is_not_absent() {
    let stage = Stage::bare();
    let machine = json!([{"machine": {"system_id": "aaaaa1", "hostname": "m1", "status": "Ready"}}]);
    stage.one.control().arrange(&serde_json::from_value::<Vec<_>>(machine).unwrap()).unwrap();
    stage.documented("http://one/MAAS", ADMIN);
    let identity = stage.found(&plain()).await;
    stage.one.control().clear_ledger();
    let long = "a".repeat(10_000);
    let ids = ["aaaaa1", "a,b", "abc 123", "\u{fc}mlaut", "../events", &long, "zzzzzz"];
    let read = futures::future::join_all(ids.iter().map(|id| identity.machines.read(id))).await;
    assert_eq!(read[0].as_ref().unwrap().system_id, "aaaaa1");
    for (id, read) in ids.iter().zip(&read).take(6).skip(1) {
        let error = read.as_ref().unwrap_err();
        assert!(!error.is_not_found() && error.to_string().contains("cannot be a MAAS system ID"), "{id}: {error}");
    }
    assert!(read[6].as_ref().unwrap_err().is_not_found(), "this one MAAS could have, and has not");

    // MAAS rejects the list nevertheless: each machine is read individually.
    let fault =
        json!({"match": {"kind": "machines.read"}, "do": "status", "status": 400, "body": "no such id", "times": 0});
    stage.one.control().add_fault(serde_json::from_value(fault).unwrap());
    let read = futures::future::join_all(["aaaaa1", "zzzzzz"].iter().map(|id| identity.machines.read(id))).await;
    assert_eq!(read[0].as_ref().unwrap().system_id, "aaaaa1");
    assert!(read[1].as_ref().unwrap_err().is_not_found());
}
