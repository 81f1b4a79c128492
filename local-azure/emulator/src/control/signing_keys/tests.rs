use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use serde_json::{Value, json};

use crate::testing::{
    DOMAIN, EngineFixture, LOGIN, TENANT, azure_with_test_principals, reply_json,
};

fn roll(probe: &EngineFixture, rollover: &str) -> (u16, Value) {
    let url = "http://127.0.0.1/lanyard/v1/signing-keys";
    let body = json!({ "tenant": DOMAIN, "rollover": rollover }).to_string();
    let header = [("x-lanyard-control", "1")];
    let reply = probe.send_request(Ingress::Port, &Method::POST, url, &header, &body);
    (reply.status.as_u16(), reply_json(&reply))
}

/// The ids of the key set.
fn published(probe: &EngineFixture) -> Vec<Value> {
    let url = format!("https://{LOGIN}/{TENANT}/discovery/v2.0/keys");
    let set = reply_json(&probe.get(Ingress::Tunnel, &url, &[]));
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].clone()).collect()
}

#[test]
fn rollover_publishes_a_key_before_it_signs_and_after_it_signed() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let first = published(&probe);
    assert_eq!(roll(&probe, "sign").0, 409);
    let (status, keys) = roll(&probe, "publish");
    assert_eq!((status, &keys["signing"]), (200, &first[0]));
    assert_eq!(published(&probe).len(), 2);
    let (_, keys) = roll(&probe, "sign");
    assert_eq!((&keys["signing"], &keys["published"][0]), (&published(&probe)[1], &first[0]));
    let (_, keys) = roll(&probe, "remove");
    assert_eq!(keys["published"], json!([keys["signing"]]));
    let (_, replaced) = roll(&probe, "replace");
    assert_ne!(replaced["signing"], keys["signing"]);
    assert_eq!(json!(published(&probe)), replaced["published"]);
}
