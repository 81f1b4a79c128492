use serde_json::{Value, json};

use super::*;
use crate::fixture::{
    AZURE, CONTROL_PLANE, KMS, example_json, example_with_changes, parse_hosted_cluster_json,
};
use crate::problem::{ProblemSeverity, ValidationProblem};

mod update;
mod usability;

fn join_pointer(base: &str, rest: &str) -> String {
    format!("{base}/{rest}")
}

fn problems_of(changes: &[(String, Value)]) -> Vec<ValidationProblem> {
    match validate(&example_with_changes(changes)) {
        Ok(validated) => validated.object_errors.into_iter().chain(validated.lints).collect(),
        Err(error) => invalid_problems(error).into_iter().collect(),
    }
}

fn invalid_problems(error: HostedClusterValidationError) -> ValidationProblems {
    match error {
        HostedClusterValidationError::Invalid(problems) => problems,
        other => panic!("{other}"),
    }
}

fn errors_of(changes: &[(String, Value)]) -> Vec<String> {
    let errors = problems_of(changes).into_iter().filter(|p| p.severity == ProblemSeverity::Error);
    errors.map(|problem| problem.to_string()).collect()
}

fn lints_of(changes: &[(String, Value)]) -> Vec<String> {
    let validated = validate(&example_with_changes(changes)).unwrap();
    validated.lints.iter().map(|lint| lint.field.clone()).collect()
}

#[test]
fn the_example_is_valid_and_clean() {
    let validated = validate(&example_with_changes(&[])).unwrap();
    assert_eq!(validated.lints, ValidationProblems::default());
    assert_eq!(validated.object_errors, ValidationProblems::default());
    let cluster = validated.hosted_cluster;
    assert_eq!(cluster.identities.len(), 9);
    assert_ne!(cluster.azure.tenant.0, cluster.vault.tenant.0);
    assert_eq!(cluster.control_plane_namespace(), "clusters-harbour");
}

#[test]
fn a_key_version_that_no_plugin_could_use_is_a_problem_of_its_field() {
    let active = join_pointer(KMS, "activeKey/keyVersion");
    let whole = "https://harbour-keys.vault.azure.net/keys/etcd/abc";
    for (version, is_good) in [(whole, false), ("a-b", false), ("abc", true)] {
        let found = errors_of(&[(active.clone(), json!(version))]);
        let expected = format!(
            "spec.secretEncryption.kms.azure.activeKey.keyVersion: `{version}` is not a key version"
        );
        assert_eq!(found.is_empty(), is_good, "{found:?}");
        assert!(found.iter().all(|it| it.starts_with(&expected)), "{found:?}");
    }
}

#[test]
fn every_problem_is_reported_at_once() {
    let found = problems_of(&[
        ("/metadata/name".to_owned(), json!("Harbour")),
        ("/spec/infraID".to_owned(), Value::Null),
        (join_pointer(AZURE, "location"), Value::Null),
        (join_pointer(AZURE, "cloud"), json!("AzureMoonCloud")),
        (join_pointer(AZURE, "tenantID"), json!("contoso.example")),
        (join_pointer(AZURE, "topology"), json!("Private")),
        (join_pointer(CONTROL_PLANE, "disk/objectEncoding"), Value::Null),
        (join_pointer(CONTROL_PLANE, "file"), Value::Null),
        (join_pointer(CONTROL_PLANE, "managedIdentitiesKeyVault/name"), json!("no")),
        (join_pointer(KMS, "activeKey/keyName"), json!("")),
    ]);
    let text: Vec<_> =
        found.iter().map(|problem| format!("{} {problem}", problem.severity)).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn empty_document_reports_every_missing_field() {
    let found = invalid_problems(validate(&HostedCluster::default()).unwrap_err());
    let fields: Vec<_> = found.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.platform",
            "spec.pullSecret",
            "spec.release",
            "spec.services",
            "metadata.name",
            "metadata.namespace",
            "spec.infraID"
        ]
    );
    let found = problems_of(&[(AZURE.to_owned(), Value::Null)]);
    assert_eq!(found[0].field, "spec.platform.azure");
}

#[test]
fn a_misspelled_resource_group_is_pruned_and_the_default_is_reported() {
    let changes = [
        (join_pointer(AZURE, "resourceGroup"), Value::Null),
        (join_pointer(AZURE, "resourceGroupName"), json!("mine")),
    ];
    let validated = validate(&example_with_changes(&changes)).unwrap();
    assert_eq!(validated.hosted_cluster.azure.resource_group, "default");
    assert_eq!(lints_of(&changes), ["spec.platform.azure.resourceGroupName"]);
    let cloud =
        validate(&example_with_changes(&[(join_pointer(AZURE, "cloud"), Value::Null)])).unwrap();
    assert_eq!(cloud.hosted_cluster.azure.cloud, lanyard_vocabulary::Cloud::Public);
}

#[test]
fn rules_beyond_the_schema_are_lints() {
    let subscription = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups";
    let network = "providers/Microsoft.Network";
    let cases: [(String, Value, &str); 12] = [
        ("/spec/issuerURL".to_owned(), json!("http://issuer.example"), "spec.issuerURL"),
        (
            join_pointer(AZURE, "subscriptionID"),
            json!("my-subscription"),
            "spec.platform.azure.subscriptionID",
        ),
        (join_pointer(AZURE, "tenantID"), json!("contoso.com"), "spec.platform.azure.tenantID"),
        (join_pointer(AZURE, "location"), json!("West Europe"), "spec.platform.azure.location"),
        (join_pointer(AZURE, "cloud"), json!("AzureBleuCloud"), "spec.platform.azure.cloud"),
        (
            join_pointer(AZURE, "vnetID"),
            json!(format!("{subscription}/g/{network}/virtualNetworks/another")),
            "spec.platform.azure.subnetID",
        ),
        (
            join_pointer(AZURE, "securityGroupID"),
            json!(format!(
                "/subscriptions/11111111-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/g/{network}/networkSecurityGroups/n"
            )),
            "spec.platform.azure.securityGroupID",
        ),
        (
            join_pointer(CONTROL_PLANE, "managedIdentitiesKeyVault/tenantID"),
            json!("contoso.com"),
            "spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.managedIdentitiesKeyVault.tenantID",
        ),
        (
            join_pointer(CONTROL_PLANE, "file/clientID"),
            example_json().pointer(&join_pointer(CONTROL_PLANE, "disk/clientID")).cloned().unwrap(),
            "spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.file.clientID",
        ),
        (
            join_pointer(CONTROL_PLANE, "imageRegistry"),
            Value::Null,
            "spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.imageRegistry",
        ),
        (
            join_pointer(
                AZURE,
                "azureAuthenticationConfig/managedIdentities/dataPlane/diskMSIClientID",
            ),
            json!("disk"),
            "spec.platform.azure.azureAuthenticationConfig.managedIdentities.dataPlane.diskMSIClientID",
        ),
        (
            join_pointer(KMS, "backupKey"),
            example_json().pointer(&join_pointer(KMS, "activeKey")).cloned().unwrap(),
            "spec.secretEncryption.kms.azure.backupKey",
        ),
    ];
    for (pointer, value, expected) in cases {
        let found = lints_of(&[(pointer.clone(), value)]);
        assert!(found.contains(&expected.to_owned()), "{pointer}: {found:?}");
        for lint in validate(&example_with_changes(&[(pointer, Value::Null)]))
            .map(|v| v.lints)
            .unwrap_or_default()
        {
            assert!(lint.hint.is_some(), "{lint}");
        }
    }
}

#[test]
fn components_with_one_secret_have_to_be_one_identity() {
    let of_disk = |field: &str| {
        example_json()
            .pointer(&join_pointer(CONTROL_PLANE, &format!("disk/{field}")))
            .cloned()
            .unwrap()
    };
    let file =
        |field: &str, value: Value| (join_pointer(CONTROL_PLANE, &format!("file/{field}")), value);
    let field = |name: &str| {
        format!(
            "spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.file.{name}"
        )
    };
    let secret = file("credentialsSecretName", json!("HARBOUR-DISK"));
    let encoding = file("objectEncoding", of_disk("objectEncoding"));
    let fields = |changes: &[(String, Value)]| {
        let found = problems_of(changes).into_iter();
        found.map(|problem| (problem.severity, problem.field)).collect::<Vec<_>>()
    };
    let shared = field("credentialsSecretName");
    assert_eq!(
        fields(&[secret.clone(), encoding.clone()]),
        [(ProblemSeverity::Error, shared.clone())],
        "two client ids"
    );
    for client_id in [of_disk("clientID"), Value::Null] {
        let changes = [secret.clone(), encoding.clone(), file("clientID", client_id)];
        assert_eq!(fields(&changes), [(ProblemSeverity::Lint, shared.clone())]);
    }
    let other = if encoding.1 == json!("hex") { "base64" } else { "hex" };
    let changes =
        [secret, file("clientID", of_disk("clientID")), file("objectEncoding", json!(other))];
    let expected =
        [(ProblemSeverity::Error, field("objectEncoding")), (ProblemSeverity::Lint, shared)];
    assert_eq!(fields(&changes), expected);
}

#[test]
fn a_text_is_read_and_checked_in_one_step_with_its_lints_first() {
    let text = crate::fixture::EXAMPLE_YAML
        .replace("resourceGroup: harbour-harbour-7kq2m", "resourceGroup: 0644");
    let validated = parse_hosted_cluster(&text).unwrap();
    assert_eq!(validated.hosted_cluster.azure.resource_group, "0644");
    let lints: Vec<_> = validated.lints.iter().map(ToString::to_string).collect();
    assert_eq!(
        lints,
        [
            "spec.platform.azure.resourceGroup: `0644` is not quoted, and the API server does not read it as a string"
        ]
    );
    let broken = text.replace("      location: westeurope\n", "");
    let error = parse_hosted_cluster(&broken).unwrap_err();
    assert!(
        matches!(&error, ParseHostedClusterError::Invalid(problems) if problems.iter().count() == 2),
        "{error}"
    );
    let error = parse_hosted_cluster("a: [").unwrap_err();
    assert!(error.to_string().contains("this is not YAML"), "{error}");
}

#[test]
fn names_that_need_yaml_quotes_are_linted() {
    for name in ["true", "Null", "123", "1e5", "0x1F", "on", "Y", "-1", "-", "2026-11-21"] {
        let found =
            lints_of(&[(join_pointer(CONTROL_PLANE, "disk/credentialsSecretName"), json!(name))]);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
    }
    for name in ["disk", "1-disk", "0xyz", "nullable", "truth", "e5", "a-1"] {
        let found =
            lints_of(&[(join_pointer(CONTROL_PLANE, "disk/credentialsSecretName"), json!(name))]);
        assert_eq!(found, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_component_that_is_switched_off_is_left_out_and_its_identity_still_checked() {
    let off = (
        "/spec/capabilities".to_owned(),
        json!({"disabled": ["ImageRegistry", "Console", "Ingress"]}),
    );
    let validated = validate(&example_with_changes(std::slice::from_ref(&off))).unwrap();
    assert_eq!(validated.hosted_cluster.identities.len(), 7);
    assert_eq!(
        lints_of(&[off.clone(), (join_pointer(CONTROL_PLANE, "imageRegistry"), Value::Null)]),
        [""; 0]
    );
    let found =
        errors_of(&[off, (join_pointer(CONTROL_PLANE, "ingress/objectEncoding"), json!("utf8"))]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn encryption_without_a_managed_identity_makes_no_component() {
    let cases = [
        ("/spec/secretEncryption".to_owned(), Value::Null),
        ("/spec/secretEncryption".to_owned(), json!({"type": "aescbc"})),
        ("/spec/secretEncryption/kms".to_owned(), json!({"provider": "AWS"})),
    ];
    for change in cases {
        let cluster =
            validate(&example_with_changes(std::slice::from_ref(&change))).unwrap().hosted_cluster;
        assert!(
            !cluster.identities.contains_key(&lanyard_vocabulary::Component::Kms),
            "{change:?}"
        );
        assert_eq!(cluster.encryption, None);
    }
    let mut workload = example_json();
    let kms = workload.pointer_mut(KMS).unwrap().as_object_mut().unwrap();
    kms.remove("kms");
    let identity = json!({"clientID": "e5c80f17-4a6b-4d93-b2f1-96d3a7e05c28"});
    kms.insert("workloadIdentity".to_owned(), identity);
    let validated = validate(&parse_hosted_cluster_json(workload)).unwrap();
    assert_eq!(validated.hosted_cluster.identities.len(), 8);
    assert_eq!(validated.lints.iter().count(), 1);
}

#[test]
fn health_probe_annotations_are_checked_as_the_reference_does() {
    let annotated = |pairs: &[(&str, &str)]| {
        let map: serde_json::Map<_, _> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        example_with_changes(&[("/metadata/annotations".to_owned(), Value::Object(map))])
    };
    let mode = HostedCluster::HEALTH_PROBE_MODE_ANNOTATION;
    let path = HostedCluster::HEALTH_PROBE_PATH_ANNOTATION;
    let port = HostedCluster::HEALTH_PROBE_PORT_ANNOTATION;
    let probe = |pairs: &[(&str, &str)]| {
        validate(&annotated(pairs)).unwrap().hosted_cluster.azure.health_probe.unwrap()
    };
    assert_eq!(probe(&[]), LoadBalancerHealthProbe::Shared);
    assert_eq!(
        probe(&[(mode, "servicenodeport"), (port, "1")]),
        LoadBalancerHealthProbe::ServiceNodePort
    );
    let expected =
        LoadBalancerHealthProbe::SharedAt { path: Some("/ok".to_owned()), port: Some(65535) };
    assert_eq!(probe(&[(mode, "shared"), (path, "/ok"), (port, "65535")]), expected);
    // The configuration omits an empty path.
    assert_eq!(probe(&[(path, "")]), LoadBalancerHealthProbe::Shared);

    let cases = [
        (mode, "Shared", " (valid values: shared, servicenodeport)"),
        (mode, "", " (valid values: shared, servicenodeport)"),
        (port, "0", " (must be between 1 and 65535)"),
        (port, "65536", " (must be between 1 and 65535)"),
        (port, "http", " (must be a valid port number)"),
        (port, "", " (must be a valid port number)"),
    ];
    for (key, value, ending) in cases {
        let validated = validate(&annotated(&[(key, value)])).unwrap();
        assert_eq!(validated.hosted_cluster.azure.health_probe, None, "{key}={value}");
        let found: Vec<_> = validated.object_errors.iter().map(ToString::to_string).collect();
        let field = format!("metadata.annotations[{key}]");
        let message = format!("invalid value for annotation {key}: {value}{ending}");
        assert_eq!(found, [format!("{field}: {message}")]);
    }
}

#[test]
fn an_infra_id_that_is_too_long_for_azure_is_a_lint() {
    for (length, expected) in [(80, &[][..]), (81, &["spec.infraID"]), (253, &["spec.infraID"])] {
        let change = ("/spec/infraID".to_owned(), json!("a".repeat(length)));
        assert_eq!(lints_of(&[change]), expected, "{length}");
    }
}

#[test]
fn a_backup_key_that_is_the_active_key_is_ignored() {
    let active = example_json().pointer(&join_pointer(KMS, "activeKey")).cloned().unwrap();
    let changes = [(join_pointer(KMS, "backupKey"), active)];
    let validated = validate(&example_with_changes(&changes)).unwrap();
    assert_eq!(validated.hosted_cluster.encryption.unwrap().backup_key, None);
    let lints: Vec<_> = validated.lints.iter().map(ToString::to_string).collect();
    assert!(lints.iter().any(|it| it.contains("the backup key is the active key")), "{lints:?}");
}

#[test]
fn a_managed_hsm_before_its_release_is_a_lint() {
    let hsm = (format!("{KMS}/keyVaultType"), json!("ManagedHSM"));
    let field = "spec.secretEncryption.kms.azure.keyVaultType";
    let image = |tag: &str| json!({"image": format!("quay.io:443/ocp/release{tag}")});
    let cases: [(&str, &[&str]); 7] = [
        (":4.21.3-multi", &[field]),
        (":4.9.0", &[field]),
        (":4.22.0-rc.1-x86_64", &[]),
        (":4.22.0", &[]),
        (":5.0.1", &[]),
        ("@sha256:0123", &[]),
        (":latest", &[]),
    ];
    for (tag, expected) in cases {
        let found = lints_of(&[hsm.clone(), ("/spec/release".to_owned(), image(tag))]);
        assert_eq!(found, expected, "{tag}");
    }
    // The control plane may have its own release.
    let control_plane = ("/spec/controlPlaneRelease".to_owned(), image(":4.22.1"));
    assert_eq!(lints_of(&[hsm, control_plane]), [""; 0]);
    assert_eq!(lints_of(&[("/spec/release".to_owned(), image(":4.21.3"))]), [""; 0]);
}
