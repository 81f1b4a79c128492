//! What the schema takes and nobody can use, and what it takes and Azure will not.

use super::*;

const SUBSCRIPTION: &str = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40";

fn refused(changes: &[(String, Value)], expected: &str) {
    assert_eq!(validate_schema(&changed(changes)), Problems::default(), "{changes:?}");
    let found = errors(changes);
    assert!(found.iter().any(|text| text.contains(expected)), "{changes:?}: {found:?}");
}

#[test]
fn an_id_that_is_none_cannot_be_used() {
    let not_an_id = "is not an Azure resource id";
    refused(&[(at(AZURE, "vnetID"), json!("default"))], not_an_id);
    refused(&[(at(AZURE, "securityGroupID"), json!("default"))], not_an_id);
    let group = json!(format!("{SUBSCRIPTION}/resourceGroups/g"));
    let not_a_network = "is not the id of a Microsoft.Network/virtualNetworks";
    refused(&[(at(AZURE, "vnetID"), group)], not_a_network);
    refused(&[(at(AZURE, "tenantID"), json!(""))], "spec.platform.azure.tenantID");
}

#[test]
fn names_that_no_vault_has_cannot_be_used() {
    let vault = at(CONTROL_PLANE, "managedIdentitiesKeyVault/name");
    refused(&[(vault, json!("no"))], "`no` is not a vault name");
    refused(&[(at(KMS, "activeKey/keyVaultName"), json!("a_b"))], "activeKey.keyVaultName");
    refused(&[(at(KMS, "activeKey/keyName"), json!("a_b"))], "activeKey.keyName");
}

#[test]
fn what_the_api_would_make_and_unions_without_their_member_cannot_be_used() {
    let required = |field: &str| format!("{field}: Required value");
    refused(&[("/spec/infraID".to_owned(), Value::Null)], &required("spec.infraID"));
    refused(&[(AZURE.to_owned(), Value::Null)], &required("spec.platform.azure"));
    let kms = "/spec/secretEncryption/kms";
    refused(&[(kms.to_owned(), Value::Null)], &required("spec.secretEncryption.kms"));
    refused(&[(KMS.to_owned(), Value::Null)], &required("spec.secretEncryption.kms.azure"));
}

#[test]
fn names_that_azure_does_not_take_are_linted() {
    let id = |group: &str, subnet: &str| {
        json!(format!(
            "{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/vv/subnets/{subnet}"
        ))
    };
    let vnet = |group: &str| {
        json!(format!(
            "{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/vv"
        ))
    };
    for (group, subnet) in [("g", "_s"), ("g", "s p"), ("g", &*"s".repeat(81))] {
        let changes =
            [(at(AZURE, "vnetID"), vnet(group)), (at(AZURE, "subnetID"), id(group, subnet))];
        assert_eq!(lints(&changes), ["spec.platform.azure.subnetID"], "{subnet}");
    }
}

#[test]
fn of_a_field_that_breaks_the_schema_nothing_more_is_said() {
    let fields = ["vnetID", "subnetID", "tenantID", "subscriptionID"];
    for field in fields {
        let changes = [(at(AZURE, field), json!("x".repeat(400)))];
        let path = format!("spec.platform.azure.{field}");
        let said = errors(&changes).iter().filter(|text| text.starts_with(&path)).count();
        let by_schema =
            validate_schema(&changed(&changes)).iter().filter(|it| it.field == path).count();
        assert_eq!(said, by_schema, "{field}");
    }
}

#[test]
fn a_signing_key_with_the_default_issuer_is_linted() {
    assert_eq!(lints(&[("/spec/issuerURL".to_owned(), Value::Null)]), ["spec.issuerURL"]);
    assert_eq!(
        lints(&[("/spec/issuerURL".to_owned(), json!("/issuer"))]),
        ["spec.issuerURL"],
        "a path is a URL to the API"
    );
}

#[test]
fn hints_name_a_spelling_that_differs_by_case_only() {
    let changes = [(at(CONTROL_PLANE, "disk/objectEncoding"), json!("UTF-8"))];
    let found = problems(&changes);
    assert_eq!(found[0].hint.as_deref(), Some("the case matters: write `utf-8`"));
}
