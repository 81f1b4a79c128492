//! The rules of the reference's schema: a change of the example, and the message it earns.

use super::*;

const SUBSCRIPTION: &str = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40";

fn rejected(changes: &[(String, Value)], expected: &str) {
    let found = errors(changes);
    assert!(found.iter().any(|text| text.contains(expected)), "{changes:?}: {found:?}");
}

fn azure(field: &str, value: Value, expected: &str) {
    rejected(&[(at(AZURE, field), value)], expected);
}

#[test]
fn fields_of_the_platform() {
    for field in ["location", "vnetID", "subnetID", "subscriptionID", "securityGroupID", "tenantID"]
    {
        azure(field, Value::Null, &format!("spec.platform.azure.{field}: Required value"));
        azure(field, json!("x".repeat(400)), "Too long: may not be more than");
    }
    azure(
        "cloud",
        json!("AzureCloud"),
        "Unsupported value: \"AzureCloud\": supported values: \"AzurePublicCloud\"",
    );
    azure("topology", json!("private"), "Unsupported value: \"private\"");
    for group in ["", "a", "ends.", "sp ace", "ä"] {
        azure("resourceGroup", json!(group), "in body should match '^[a-zA-Z0-9_()");
    }
    azure("vnetID", json!("default"), "is not an Azure resource id");
    azure(
        "vnetID",
        json!(format!("{SUBSCRIPTION}/resourceGroups/g")),
        "is not the id of a Microsoft.Network/virtualNetworks",
    );
    azure("azureAuthenticationConfig", Value::Null, "azureAuthenticationConfig: Required value");
}

#[test]
fn subnet_ids() {
    let id = |group: &str, vnet: &str, subnet: &str| {
        json!(format!(
            "{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/{vnet}/subnets/{subnet}"
        ))
    };
    let lower = id("g", "vv", "s").as_str().unwrap().replace("resourceGroups", "resourcegroups");
    azure("subnetID", json!(lower), "must be in the format `/subscriptions/");
    azure("subnetID", json!("/subscriptions/s"), "must be in the format `/subscriptions/");
    azure("subnetID", id("", "vv", "s"), "The resourceGroupName should be between 1 and 90");
    azure(
        "subnetID",
        id("g.", "vv", "s"),
        "the resourceGroupName in the subnetID must not end with a period",
    );
    azure("subnetID", id("g", "v", "s"), "The vnetName should be between 2 and 64");
    azure("subnetID", id("g", "vv-", "s"), "the vnetName in the subnetID must not end with either");
    azure("subnetID", id("g", "vv", "_"), "The subnetName should be between 1 and 80");
    azure(
        "subnetID",
        id("g", "vv", "s."),
        "the subnetName in the subnetID must not end with a period",
    );

    // Unanchored patterns find their match in these; Azure takes none of them.
    let vnet = |group: &str| {
        json!(format!(
            "{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/vv"
        ))
    };
    for (group, subnet) in [("g", "_s"), ("g", "s p"), ("g", &*"s".repeat(81))] {
        let changes =
            [(at(AZURE, "vnetID"), vnet(group)), (at(AZURE, "subnetID"), id(group, "vv", subnet))];
        assert_eq!(lints(&changes), ["spec.platform.azure.subnetID"], "{subnet}");
    }
}

#[test]
fn the_private_union() {
    let union =
        "private is required when topology is Private or PublicAndPrivate, and forbidden otherwise";
    azure("topology", json!("Private"), union);
    azure("private", json!({"type": "Swift", "swift": {"podNetworkInstance": "a"}}), union);
    let private = |private: Value, expected: &str| {
        rejected(
            &[(at(AZURE, "topology"), json!("Private")), (at(AZURE, "private"), private)],
            expected,
        );
    };
    let link = "privateLink is required when type is PrivateLink, and forbidden otherwise";
    let swift = "swift is required when type is Swift, and forbidden otherwise";
    private(json!({"type": "PrivateLink"}), link);
    private(json!({"type": "Swift", "privateLink": {"natSubnetID": "x"}}), link);
    private(json!({"type": "Swift"}), swift);
    private(
        json!({"type": "PrivateLink", "privateLink": {}, "swift": {"podNetworkInstance": "a"}}),
        swift,
    );
    private(json!({"swift": {"podNetworkInstance": "a"}}), "private.type: Required value");
    private(json!({"type": "Nat"}), "Unsupported value: \"Nat\"");
    private(json!({"type": "PrivateLink", "privateLink": {}}), "should have at least 1 properties");
    private(
        json!({"type": "PrivateLink", "privateLink": {"natSubnetID": "x"}}),
        "natSubnetID: encryptionSetID must be",
    );
    private(
        json!({"type": "PrivateLink", "privateLink": {"additionalAllowedSubscriptions": ["x"]}}),
        "[0]: Invalid value: \"x\"",
    );
    let one = "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40";
    private(
        json!({"type": "PrivateLink", "privateLink": {"additionalAllowedSubscriptions": [one, one]}}),
        "[1]: Duplicate value",
    );
    for name in ["", "A", "-a", "a.b"] {
        private(
            json!({"type": "Swift", "swift": {"podNetworkInstance": name}}),
            "podNetworkInstance",
        );
    }
    let changes = [
        (at(AZURE, "topology"), json!("PublicAndPrivate")),
        (
            at(AZURE, "private"),
            json!({"type": "Swift", "swift": {"podNetworkInstance": "swift-1"}}),
        ),
    ];
    assert_eq!(errors(&changes), [""; 0]);
}

#[test]
fn the_registry_identity() {
    let registry = |credentials: Value| json!({ "credentials": credentials });
    let id = format!(
        "{SUBSCRIPTION}/resourcegroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/pulls-images"
    );
    let with = |id: &str| {
        registry(json!({"type": "ManagedIdentity", "managedIdentity": {"resourceID": id}}))
    };
    assert_eq!(errors(&[(at(AZURE, "containerRegistry"), with(&id))]), [""; 0]);
    azure("containerRegistry", json!({}), "containerRegistry.credentials: Required value");
    azure(
        "containerRegistry",
        registry(json!({"type": "ManagedIdentity"})),
        "managedIdentity is required when type is ManagedIdentity, and forbidden otherwise",
    );
    azure("containerRegistry", with("short"), "should be at least 131 chars long");
    let format = "must be a user-assigned managed identity ARM resource ID in the format";
    azure("containerRegistry", with("short"), format);
    azure("containerRegistry", with(&format!("{id}/")), format);
    let other = id.replace("userAssignedIdentities", "systemAssignedIdentity");
    azure(
        "containerRegistry",
        with(&other),
        "must be a user-assigned managed identity ARM resource ID in the format",
    );
}

#[test]
fn the_authentication_union() {
    let field = "azureAuthenticationConfig";
    let managed = "managedIdentities is required when azureAuthenticationConfigType is ManagedIdentities, and forbidden otherwise";
    let workload = "workloadIdentities is required when azureAuthenticationConfigType is WorkloadIdentities, and forbidden otherwise";
    azure(field, json!({"azureAuthenticationConfigType": "ManagedIdentities"}), managed);
    azure(
        field,
        json!({"azureAuthenticationConfigType": "ManagedIdentities", "workloadIdentities": {}}),
        workload,
    );
    azure(field, json!({"managedIdentities": {}}), "azureAuthenticationConfigType: Required value");
    azure(
        field,
        json!({"azureAuthenticationConfigType": "ServicePrincipal"}),
        "Unsupported value: \"ServicePrincipal\"",
    );
}

#[test]
fn identities() {
    let identity = |field: &str, value: Value, expected: &str| {
        rejected(&[(at(CONTROL_PLANE, &format!("disk/{field}")), value)], expected);
    };
    let uuid = "the client ID of a managed identity must be a valid UUID. It should be 5 groups of hyphen separated hexadecimal characters in the form 8-4-4-4-12.";
    identity("clientID", json!("not-a-uuid"), uuid);
    identity("clientID", json!("{3b6f0c52-7d1a-4e8b-9c47-a05f2d8e6b31}"), uuid);
    assert_eq!(errors(&[(at(CONTROL_PLANE, "disk/clientID"), Value::Null)]), [""; 0]);
    identity("objectEncoding", Value::Null, "disk.objectEncoding: Required value");
    identity(
        "objectEncoding",
        json!("UTF-8"),
        "Unsupported value: \"UTF-8\": supported values: \"utf-8\", \"hex\", \"base64\"",
    );
    identity("credentialsSecretName", json!(""), "should be at least 1 chars long");
    identity("credentialsSecretName", json!("a_b"), "in body should match '^[a-zA-Z0-9-]+$'");
    identity(
        "credentialsSecretName",
        json!("x".repeat(128)),
        "Too long: may not be more than 127 bytes",
    );
    for component in [
        "cloudProvider",
        "nodePoolManagement",
        "controlPlaneOperator",
        "ingress",
        "network",
        "disk",
        "file",
        "managedIdentitiesKeyVault",
    ] {
        rejected(
            &[(at(CONTROL_PLANE, component), Value::Null)],
            &format!("controlPlane.{component}: Required value"),
        );
    }
    azure(
        "azureAuthenticationConfig/managedIdentities/dataPlane",
        Value::Null,
        "dataPlane: Required value",
    );
}

#[test]
fn encryption() {
    let kms = |field: &str, value: Value, expected: &str| {
        rejected(&[(at(KMS, field), value)], expected);
    };
    let key = |vault: &str| json!({"keyVaultName": vault, "keyName": "k", "keyVersion": "1"});
    kms(
        "backupKey",
        key("other-keys"),
        "backupKey.keyVaultName must match activeKey.keyVaultName; both keys must reside in the same Key Vault",
    );
    kms(
        "workloadIdentity",
        json!({"clientID": "x"}),
        "kms and workloadIdentity are mutually exclusive",
    );
    kms("kms", Value::Null, "one of kms or workloadIdentity must be set");
    kms("activeKey", Value::Null, "activeKey: Required value");
    kms("activeKey/keyVersion", json!(""), "should be at least 1 chars long");
    kms("keyVaultType", json!("HSM"), "Unsupported value: \"HSM\"");
    kms("keyVaultAccess", json!("private"), "Unsupported value: \"private\"");
    kms(
        "kms/objectEncoding",
        Value::Null,
        "spec.secretEncryption.kms.azure.kms.objectEncoding: Required value",
    );
    assert_eq!(errors(&[(at(KMS, "keyVaultAccess"), json!(""))]), [""; 0]);
    rejected(
        &[("/spec/secretEncryption/type".to_owned(), json!("none"))],
        "Unsupported value: \"none\"",
    );
    rejected(
        &[("/spec/secretEncryption/kms/provider".to_owned(), json!("GCP"))],
        "Unsupported value: \"GCP\"",
    );
}

#[test]
fn issuer_and_services() {
    let url = "issuerURL must be a valid absolute URL";
    rejected(&[("/spec/issuerURL".to_owned(), json!("not a url"))], url);
    rejected(&[("/spec/issuerURL".to_owned(), json!(""))], url);
    // The default comes before the rule that a signing key needs an issuer.
    assert_eq!(lints(&[("/spec/issuerURL".to_owned(), Value::Null)]), ["spec.issuerURL"]);

    rejected(&[("/spec/services".to_owned(), json!([]))], "should have at least 4 items");
    let cases = [
        (1, "Azure managed platform (ARO HCP) requires OAuthServer to use Route"),
        (2, "Azure platform requires Konnectivity Route service with a hostname to be defined"),
        (3, "Azure platform requires Ignition Route service with a hostname to be defined"),
    ];
    for (index, expected) in cases {
        let strategy = format!("/spec/services/{index}/servicePublishingStrategy/type");
        assert_eq!(
            errors(&[(strategy, json!("LoadBalancer"))]),
            [format!("spec.services: {expected}")]
        );
    }
}

#[test]
fn ids_of_the_cluster() {
    let infra = "infraID must consist of lowercase alphanumeric characters or '-'";
    for id in ["", "-a", "a-", "A", "a.b", "a_b"] {
        rejected(&[("/spec/infraID".to_owned(), json!(id))], infra);
    }
    rejected(&[("/spec/clusterID".to_owned(), json!("1"))], "clusterID must be an RFC4122 UUID");
    assert_eq!(errors(&[("/spec/clusterID".to_owned(), Value::Null)]), [""; 0]);
}

#[test]
fn hints_name_a_spelling_that_differs_by_case_only() {
    let changes = [(at(CONTROL_PLANE, "disk/objectEncoding"), json!("UTF-8"))];
    let found = problems(&changes);
    assert_eq!(found[0].hint.as_deref(), Some("the case matters: write `utf-8`"));
}
