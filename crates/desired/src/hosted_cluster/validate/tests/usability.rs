//! Values that the schema accepts and that lanyard or Azure rejects.

use super::*;

const SUBSCRIPTION: &str = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40";

fn assert_rejected(changes: &[(String, Value)], expected: &str) {
    assert_eq!(
        validate_schema(&example_with_changes(changes)),
        ValidationProblems::default(),
        "{changes:?}"
    );
    let found = errors_of(changes);
    assert!(found.iter().any(|text| text.contains(expected)), "{changes:?}: {found:?}");
}

#[test]
fn invalid_tenant_is_rejected() {
    assert_rejected(
        &[(join_pointer(AZURE, "tenantID"), json!(""))],
        "spec.platform.azure.tenantID",
    );
}

#[test]
fn unusable_network_ids_are_errors_of_single_objects() {
    let group = format!("{SUBSCRIPTION}/resourceGroups/g");
    let not_an_id = "is not an Azure resource id";
    let cases = [
        ("vnetID", "default", not_an_id),
        ("vnetID", "", not_an_id),
        ("vnetID", &*group, "is not the id of a Microsoft.Network/virtualNetworks"),
        ("securityGroupID", "default", not_an_id),
        ("securityGroupID", &*group, "is not the id of a Microsoft.Network/networkSecurityGroups"),
    ];
    for (field, text, expected) in cases {
        let changes = [(join_pointer(AZURE, field), json!(text))];
        let validated = validate(&example_with_changes(&changes)).unwrap();
        let azure = validated.hosted_cluster.azure;
        assert_eq!(azure.vnet.is_none(), field == "vnetID");
        assert_eq!(azure.security_group.is_none(), field == "securityGroupID");
        let found: Vec<_> = validated.object_errors.iter().map(ToString::to_string).collect();
        let [error] = found.as_slice() else { panic!("{found:?}") };
        assert!(error.starts_with(&format!("spec.platform.azure.{field}: ")), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn every_error_of_a_rejected_cluster_is_reported() {
    let changes = [
        (join_pointer(AZURE, "tenantID"), json!("")),
        (join_pointer(AZURE, "vnetID"), json!("default")),
    ];
    let error = validate(&example_with_changes(&changes)).unwrap_err();
    let fields: Vec<_> = invalid_problems(error).into_iter().map(|it| it.field).collect();
    assert!(fields.contains(&"spec.platform.azure.tenantID".to_owned()), "{fields:?}");
    assert!(fields.contains(&"spec.platform.azure.vnetID".to_owned()), "{fields:?}");
}

#[test]
fn invalid_vault_names_are_rejected() {
    let vault = join_pointer(CONTROL_PLANE, "managedIdentitiesKeyVault/name");
    assert_rejected(&[(vault, json!("no"))], "`no` is not a vault name");
    assert_rejected(
        &[(join_pointer(KMS, "activeKey/keyVaultName"), json!("a_b"))],
        "activeKey.keyVaultName",
    );
    assert_rejected(&[(join_pointer(KMS, "activeKey/keyName"), json!("a_b"))], "activeKey.keyName");
}

#[test]
fn missing_infra_id_and_union_members_are_rejected() {
    let required = |field: &str| format!("{field}: Required value");
    assert_rejected(&[("/spec/infraID".to_owned(), Value::Null)], &required("spec.infraID"));
    assert_rejected(&[(AZURE.to_owned(), Value::Null)], &required("spec.platform.azure"));
    let kms = "/spec/secretEncryption/kms";
    assert_rejected(&[(kms.to_owned(), Value::Null)], &required("spec.secretEncryption.kms"));
    assert_rejected(&[(KMS.to_owned(), Value::Null)], &required("spec.secretEncryption.kms.azure"));
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
        let changes = [
            (join_pointer(AZURE, "vnetID"), vnet(group)),
            (join_pointer(AZURE, "subnetID"), id(group, subnet)),
        ];
        assert_eq!(lints_of(&changes), ["spec.platform.azure.subnetID"], "{subnet}");
    }
}

#[test]
fn field_with_schema_error_gets_no_further_lints() {
    let fields = ["vnetID", "subnetID", "tenantID", "subscriptionID"];
    for field in fields {
        let changes = [(join_pointer(AZURE, field), json!("x".repeat(400)))];
        let path = format!("spec.platform.azure.{field}");
        let said = errors_of(&changes).iter().filter(|text| text.starts_with(&path)).count();
        let by_schema = validate_schema(&example_with_changes(&changes))
            .iter()
            .filter(|it| it.field == path)
            .count();
        assert_eq!(said, by_schema, "{field}");
    }
}

#[test]
fn a_signing_key_with_the_default_issuer_is_linted() {
    assert_eq!(lints_of(&[("/spec/issuerURL".to_owned(), Value::Null)]), ["spec.issuerURL"]);
    assert_eq!(
        lints_of(&[("/spec/issuerURL".to_owned(), json!("/issuer"))]),
        ["spec.issuerURL"],
        "a path is a URL to the API"
    );
}

#[test]
fn hints_name_a_spelling_that_differs_by_case_only() {
    let changes = [(join_pointer(CONTROL_PLANE, "disk/objectEncoding"), json!("UTF-8"))];
    let found = problems_of(&changes);
    assert_eq!(found[0].hint.as_deref(), Some("the case matters: write `utf-8`"));
}
