use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::fixture::{AZURE, example_with_changes, validated_cluster};

fn format_call(call: &ProofCall) -> String {
    let place = match &call.target {
        ProofTarget::Arm { path } => path.clone(),
        ProofTarget::Vault { vault, object } => format!("{vault}{}", object.path()),
    };
    format!("{place}?api-version={} needs {}", call.api_version, call.permission)
}

fn format_calls(cluster: &ValidatedHostedCluster) -> String {
    let lines = desired_proof_calls(cluster).into_iter().map(|(component, calls)| {
        format!(
            "{component}\n  + {}\n  - {}",
            format_call(&calls.granted),
            format_call(&calls.refused)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_component_has_its_two_requests() {
    let cluster = validated_cluster(&example_with_changes(&[]));
    let text = format_calls(&cluster).replace("0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40", "S");
    insta::assert_snapshot!(text);
}

#[test]
fn the_table_has_a_row_for_every_component() {
    let rows: BTreeSet<_> = PROOF_RESOURCES.iter().map(|(component, ..)| *component).collect();
    assert_eq!(rows, BTreeSet::from(Component::ALL));
}

#[test]
fn granted_and_refused_calls_need_different_permissions() {
    let one_group = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/one/providers/Microsoft.Network";
    let single = [
        (format!("{AZURE}/resourceGroup"), json!("one")),
        (format!("{AZURE}/vnetID"), json!(format!("{one_group}/virtualNetworks/vv"))),
        (format!("{AZURE}/subnetID"), json!(format!("{one_group}/virtualNetworks/vv/subnets/s"))),
        (format!("{AZURE}/securityGroupID"), json!(format!("{one_group}/networkSecurityGroups/n"))),
    ];
    for changes in [&[][..], &single[..]] {
        let proofs = desired_proof_calls(&validated_cluster(&example_with_changes(changes)));
        assert_eq!(proofs.len(), 9);
        for (component, calls) in proofs {
            assert_ne!(calls.granted.permission, calls.refused.permission, "{component}");
            assert_eq!(calls.granted.expected, ExpectedAuthorization::Granted);
            assert_eq!(calls.refused.expected, ExpectedAuthorization::Refused);
        }
    }
}

#[test]
fn ingress_without_dns_zone_uses_another_secret_as_refused_call() {
    let cluster =
        validated_cluster(&example_with_changes(&[("/spec/dns".to_owned(), Value::Null)]));
    let refused = &desired_proof_calls(&cluster)[&Component::Ingress].refused;
    let own = &cluster.identities[&Component::Ingress].secret_name;
    match &refused.target {
        ProofTarget::Vault { vault, object: ProofVaultObject::Secret(name) } => {
            assert_eq!(vault, &cluster.vault.name);
            assert_ne!(name, own);
        }
        target => panic!("{target:?}"),
    }
}

#[test]
fn a_component_that_does_not_run_proves_nothing() {
    let cluster = validated_cluster(&example_with_changes(&[(
        "/spec/secretEncryption".to_owned(),
        Value::Null,
    )]));
    let proofs = desired_proof_calls(&cluster);
    assert_eq!(proofs.len(), 8);
    assert!(!proofs.contains_key(&Component::Kms));
}

#[test]
fn only_responses_after_authorization_prove_a_permission() {
    let call = |expected| ProofCall {
        target: ProofTarget::Arm { path: "/subscriptions/s".to_owned() },
        api_version: "2024-01-01",
        permission: "a/read",
        expected,
    };
    let cases = [
        (ExpectedAuthorization::Granted, 200, "", true),
        (ExpectedAuthorization::Granted, 404, "ResourceNotFound", true),
        (ExpectedAuthorization::Granted, 404, "SubscriptionNotFound", false),
        (ExpectedAuthorization::Granted, 403, "AuthorizationFailed", false),
        (ExpectedAuthorization::Granted, 403, "KeyDisabled", true),
        (ExpectedAuthorization::Granted, 501, "NotImplemented", false),
        (ExpectedAuthorization::Refused, 403, "AuthorizationFailed", true),
        (ExpectedAuthorization::Refused, 403, "ForbiddenByRbac", true),
        (ExpectedAuthorization::Refused, 403, "ForbiddenByFirewall", false),
        (ExpectedAuthorization::Refused, 403, "KeyDisabled", false),
        (ExpectedAuthorization::Refused, 401, "InvalidAuthenticationToken", false),
        (ExpectedAuthorization::Refused, 200, "", false),
    ];
    for (expected, status, code, proved) in cases {
        assert_eq!(call(expected).is_met_by(status, code), proved, "{expected:?} {status} {code}");
    }
}

#[test]
fn request_line_is_the_canary_call_argument() {
    let proofs = desired_proof_calls(&validated_cluster(&example_with_changes(&[])));
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
