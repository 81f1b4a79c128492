use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::fixture::{AZURE, changed, valid};

fn line(call: &ProofCall) -> String {
    let place = match &call.target {
        ProofTarget::Arm { path } => path.clone(),
        ProofTarget::Vault { vault, object } => format!("{vault}{}", object.path()),
    };
    format!("{place}?api-version={} needs {}", call.api_version, call.permission)
}

fn lines(cluster: &ValidatedHostedCluster) -> String {
    let lines = desired_proofs(cluster).into_iter().map(|(component, calls)| {
        format!("{component}\n  + {}\n  - {}", line(&calls.granted), line(&calls.refused))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_component_has_its_two_requests() {
    let cluster = valid(&changed(&[]));
    let text = lines(&cluster).replace("0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40", "S");
    insta::assert_snapshot!(text);
}

#[test]
fn the_table_has_a_row_for_every_component() {
    let rows: BTreeSet<_> = PROOFS.iter().map(|(component, ..)| *component).collect();
    assert_eq!(rows, BTreeSet::from(Component::ALL));
}

#[test]
fn what_is_granted_and_what_is_refused_never_ask_for_the_same() {
    let one_group = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/one/providers/Microsoft.Network";
    let single = [
        (format!("{AZURE}/resourceGroup"), json!("one")),
        (format!("{AZURE}/vnetID"), json!(format!("{one_group}/virtualNetworks/vv"))),
        (format!("{AZURE}/subnetID"), json!(format!("{one_group}/virtualNetworks/vv/subnets/s"))),
        (format!("{AZURE}/securityGroupID"), json!(format!("{one_group}/networkSecurityGroups/n"))),
    ];
    for changes in [&[][..], &single[..]] {
        let proofs = desired_proofs(&valid(&changed(changes)));
        assert_eq!(proofs.len(), 9);
        for (component, calls) in proofs {
            assert_ne!(calls.granted.permission, calls.refused.permission, "{component}");
            assert_eq!(calls.granted.expected, Expected::Granted);
            assert_eq!(calls.refused.expected, Expected::Refused);
        }
    }
}

#[test]
fn without_a_zone_the_ingress_is_refused_the_secret_of_another() {
    let cluster = valid(&changed(&[("/spec/dns".to_owned(), Value::Null)]));
    let refused = &desired_proofs(&cluster)[&Component::Ingress].refused;
    let own = &cluster.identities[&Component::Ingress].secret_name;
    match &refused.target {
        ProofTarget::Vault { vault, object: VaultObject::Secret(name) } => {
            assert_eq!(vault, &cluster.vault.name);
            assert_ne!(name, own);
        }
        target => panic!("{target:?}"),
    }
}

#[test]
fn a_component_that_does_not_run_proves_nothing() {
    let cluster = valid(&changed(&[("/spec/secretEncryption".to_owned(), Value::Null)]));
    let proofs = desired_proofs(&cluster);
    assert_eq!(proofs.len(), 8);
    assert!(!proofs.contains_key(&Component::Kms));
}

#[test]
fn an_answer_proves_a_right_only_by_what_comes_after_authorization() {
    let call = |expected| ProofCall {
        target: ProofTarget::Arm { path: "/subscriptions/s".to_owned() },
        api_version: "2024-01-01",
        permission: "a/read",
        expected,
    };
    let cases = [
        (Expected::Granted, 200, "", true),
        (Expected::Granted, 404, "ResourceNotFound", true),
        (Expected::Granted, 404, "SubscriptionNotFound", false),
        (Expected::Granted, 403, "AuthorizationFailed", false),
        (Expected::Granted, 403, "KeyDisabled", true),
        (Expected::Granted, 501, "NotImplemented", false),
        (Expected::Refused, 403, "AuthorizationFailed", true),
        (Expected::Refused, 403, "ForbiddenByRbac", true),
        (Expected::Refused, 403, "ForbiddenByFirewall", false),
        (Expected::Refused, 403, "KeyDisabled", false),
        (Expected::Refused, 401, "InvalidAuthenticationToken", false),
        (Expected::Refused, 200, "", false),
    ];
    for (expected, status, code, proved) in cases {
        assert_eq!(call(expected).is_met_by(status, code), proved, "{expected:?} {status} {code}");
    }
}

#[test]
fn the_request_line_is_what_a_canary_is_told_to_call() {
    let proofs = desired_proofs(&valid(&changed(&[])));
    let endpoints = lanyard_vocabulary::Cloud::UsGovernment.endpoints().unwrap();
    let line = |component| proofs[&component].granted.request_line(endpoints);
    assert_eq!(
        line(Component::Kms),
        "GET https://harbour-keys.vault.usgovcloudapi.net/keys/etcd-encryption?api-version=7.4"
    );
    let arm = line(Component::ControlPlaneOperator);
    assert!(arm.starts_with("GET https://management.usgovcloudapi.net/subscriptions/"), "{arm}");
    assert!(arm.ends_with("?api-version=2023-11-01"), "{arm}");
}
