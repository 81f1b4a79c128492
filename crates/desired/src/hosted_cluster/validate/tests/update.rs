//! The rules about change: a change of the example before, one after, and the message.

use super::*;
use crate::hosted_cluster::validate::validate_update;

fn messages(before: &[(String, Value)], after: &[(String, Value)]) -> Vec<String> {
    let after: Vec<_> = before.iter().chain(after).cloned().collect();
    let problems = validate_update(&changed(before), &changed(&after));
    problems.iter().map(|problem| problem.message.clone()).collect()
}

fn azure(field: &str, value: Value) -> (String, Value) {
    (at(AZURE, field), value)
}

#[test]
fn immutable_fields() {
    let cases = [
        (azure("location", json!("eastus")), "Location is immutable"),
        (azure("resourceGroup", Value::Null), "ResourceGroupName is immutable"),
        (azure("vnetID", json!("/x")), "VnetID is immutable"),
        (azure("subnetID", json!("/x")), "SubnetID is immutable"),
        (azure("subscriptionID", json!("x")), "SubscriptionID is immutable"),
        (azure("securityGroupID", json!("/x")), "SecurityGroupID is immutable"),
        (azure("topology", Value::Null), "topology cannot be removed once set"),
        (("/spec/issuerURL".to_owned(), Value::Null), "issuerURL is immutable"),
        (("/spec/infraID".to_owned(), json!("other")), "infraID is immutable"),
        (
            ("/spec/services".to_owned(), json!([])),
            "Services is immutable. Changes might result in unpredictable and disruptive behavior.",
        ),
        (
            ("/spec/secretEncryption".to_owned(), Value::Null),
            "secretEncryption cannot be removed once configured",
        ),
        ((at(KMS, "keyVaultType"), json!("ManagedHSM")), "keyVaultType is immutable"),
    ];
    for (change, expected) in cases {
        assert_eq!(messages(&[], std::slice::from_ref(&change)), [expected], "{change:?}");
    }
}

#[test]
fn a_default_that_is_written_out_is_no_change() {
    let default = azure("resourceGroup", json!("default"));
    assert_eq!(messages(&[azure("resourceGroup", Value::Null)], &[default]), [""; 0]);
    assert_eq!(messages(&[], &[(at(KMS, "keyVaultType"), json!("KeyVault"))]), [""; 0]);
    assert_eq!(
        messages(
            &[("/spec/infraID".to_owned(), json!(""))],
            &[("/spec/infraID".to_owned(), json!("x"))]
        ),
        [""; 0]
    );
}

#[test]
fn what_may_change_may_change() {
    let changes = [
        azure("tenantID", json!("00000000-0000-0000-0000-000000000000")),
        (at(CONTROL_PLANE, "disk/credentialsSecretName"), json!("other")),
        (at(CONTROL_PLANE, "managedIdentitiesKeyVault/name"), json!("other")),
        (at(KMS, "activeKey/keyVersion"), json!("2")),
    ];
    assert_eq!(messages(&[], &changes), [""; 0]);
}

#[test]
fn private_connectivity() {
    let swift = |name: &str| json!({"type": "Swift", "swift": {"podNetworkInstance": name}});
    let link = |subnet: Value| json!({"type": "PrivateLink", "privateLink": subnet});
    let private = [azure("topology", json!("Private")), azure("private", swift("a"))];
    assert_eq!(
        messages(&private, &[azure("topology", json!("Public")), azure("private", Value::Null)]),
        [
            "private cannot be added or removed after cluster creation",
            "transitions between Public and non-Public topology are not supported"
        ]
    );
    assert_eq!(messages(&private, &[azure("topology", json!("PublicAndPrivate"))]), [""; 0]);
    assert_eq!(
        messages(&private, &[azure("private", swift("b"))]),
        ["podNetworkInstance is immutable"]
    );
    assert_eq!(messages(&private, &[azure("private", link(json!({})))]), ["type is immutable"]);
    let linked = [azure("private", link(json!({"natSubnetID": "x"})))];
    assert_eq!(
        messages(&linked, &[azure("private", link(json!({"natSubnetID": "y"})))]),
        ["natSubnetID is immutable once set"]
    );
    assert_eq!(messages(&[azure("private", link(json!({})))], &linked), [""; 0]);
}

#[test]
fn a_change_of_the_kind_of_identities_is_linted() {
    let kind = "azureAuthenticationConfig/azureAuthenticationConfigType";
    let found =
        validate_update(&changed(&[]), &changed(&[azure(kind, json!("WorkloadIdentities"))]));
    let severities: Vec<_> = found.iter().map(|problem| problem.severity).collect();
    assert_eq!(severities, [Severity::Lint]);
    let kms = [(at(KMS, "kms"), Value::Null), (at(KMS, "workloadIdentity"), json!({}))];
    assert_eq!(messages(&[], &kms), ["the KMS authentication mode is immutable once set"]);
}
