//! Every row of every condition.

use super::*;
use crate::hosted_cluster::key_rotation::DATA_ENCRYPTION_UP_TO_DATE;

#[test]
fn lints_are_reported_in_advised_configuration_only() {
    let mut world = StatusFixture::all_ready();
    assert_eq!(world.condition(ADVISED_CONFIGURATION).0, "True");
    world.lints.lint(
        "spec.platform.azure.location",
        "`West Europe` is no short name",
        "write `westeurope`",
    );
    let (status, reason, message) = world.condition(ADVISED_CONFIGURATION);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Linted"));
    assert_eq!(
        message,
        "spec.platform.azure.location: `West Europe` is no short name; next: write `westeurope`"
    );
    assert_eq!(world.condition(VALID_AZURE_IDENTITIES).0, "True");
    let events = status_transitions(Some(&StatusFixture::all_ready().status()), &world.status());
    assert_eq!(events.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(), ["Linted"]);

    // For an invalid cluster, only the errors are the reason.
    let mut problems = world.lints.clone();
    problems.error_with_hint("spec.infraID", "infraID is required", "set `infraID`");
    problems.error("spec.issuerURL", "not a URL");
    let mut observed = world.inputs();
    observed.cluster = ClusterValidation::Invalid(&problems);
    let all = identities_status(&observed).conditions;
    let message = |kind: &str| &all.iter().find(|it| it.type_ == kind).unwrap().message;
    let expected = "the HostedCluster cannot be used: spec.infraID: infraID is required; next: set \
                    `infraID` | spec.issuerURL: not a URL";
    assert_eq!(message(VALID_AZURE_IDENTITIES), expected);
    assert!(message(ADVISED_CONFIGURATION).contains("West Europe"));
}

#[test]
fn errors_of_a_valid_cluster_are_reported_before_its_lints() {
    let mut world = StatusFixture::all_ready();
    world.lints.lint("spec.a", "one", "do a");
    world.lints.error("metadata.annotations[b]", "two");
    assert_eq!(
        world.condition(ADVISED_CONFIGURATION),
        condition_content(
            "False",
            "ObjectsNotRendered",
            "metadata.annotations[b]: two | spec.a: one; next: do a"
        )
    );
    assert_eq!(world.condition(VALID_AZURE_IDENTITIES).0, "True");
}

#[test]
fn an_unusable_network_id_is_an_invalid_network() {
    let text = json!("default");
    let field = format!("{AZURE}/securityGroupID");
    let world =
        StatusFixture::for_cluster(validated_cluster(&example_with_changes(&[(field, text)])));
    assert_eq!(
        world.condition(VALID_NETWORK),
        condition_content(
            "False",
            "InsufficientClusterCapabilities",
            "`spec.platform.azure.securityGroupID` is not the id of such a resource"
        )
    );
}

#[test]
fn the_data_encryption_is_reported_where_the_key_record_is_kept() {
    let has_condition = |world: &StatusFixture| {
        world.status().conditions.iter().any(|it| it.type_ == DATA_ENCRYPTION_UP_TO_DATE)
    };
    let mut world = StatusFixture::all_ready();
    assert!(!has_condition(&world));
    world.data_encryption = Some(DataEncryption {
        is_up_to_date: false,
        reason: "ReadOnlyRolloutInProgress",
        message: "one encrypts until the API servers can decrypt with another".to_owned(),
    });
    let expected = condition_content(
        "False",
        "ReadOnlyRolloutInProgress",
        "one encrypts until the API servers can decrypt with another",
    );
    assert_eq!(world.condition(DATA_ENCRYPTION_UP_TO_DATE), expected);
    // An invalid HostedCluster changes no key.
    world.previous_status = Some(world.status());
    let problems = ValidationProblems::default();
    let invalid = IdentityStatusInputs {
        cluster: ClusterValidation::Invalid(&problems),
        data_encryption: None,
        ..world.inputs()
    };
    let mut conditions = identities_status(&invalid).conditions.into_iter();
    let retained = conditions.find(|it| it.type_ == DATA_ENCRYPTION_UP_TO_DATE).unwrap();
    assert_eq!((retained.status, retained.reason, retained.message), expected);
}

#[test]
fn all_identities_that_work_are_valid() {
    let world = StatusFixture::all_ready();
    assert_eq!(
        world.condition(VALID_AZURE_IDENTITIES),
        condition_content("True", "AsExpected", "All is well")
    );
    assert_eq!(world.condition(CREDENTIALS_RENEWED).0, "True");
    assert_eq!(world.condition(IDENTITIES_IN_STEP).0, "True");
}

#[test]
fn broken_identities_take_precedence_over_unknown_ones() {
    let mut world = StatusFixture::all_ready();
    world.pod_of_component(Component::File).canary_report = StatusReportAnnotation::Absent;
    let (status, reason, message) = world.condition(VALID_AZURE_IDENTITIES);
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NotProven"));
    assert!(message.starts_with("file: "), "{message}");

    world.report_canary_failure(Component::Disk, Hop::EntraToken, "AADSTS700027");
    let (status, reason, message) = world.condition(VALID_AZURE_IDENTITIES);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "AADSTS700027"));
    assert_eq!(
        message,
        "disk at entra-token: AADSTS700027: pod `azure-disk-csi-driver-controller`: what came back; next: do this"
    );

    world.report_canary_failure(Component::Ingress, Hop::Granted, "AuthorizationFailed");
    let (_, reason, message) = world.condition(VALID_AZURE_IDENTITIES);
    assert_eq!(reason, "IdentitiesBroken");
    assert!(message.starts_with("ingress at granted") && message.contains(" | disk at"));
}

#[test]
fn message_has_the_complete_scope_of_a_missing_permission() {
    let mut world = StatusFixture::all_ready();
    let scope = format!("/subscriptions/{}/resourceGroups/{}", "0".repeat(36), "g".repeat(200));
    let message = format!(
        "no permission for `Microsoft.KeyVault/vaults/secrets/getSecret/action` at `{scope}`"
    );
    world.report_canary_failure(Component::Disk, Hop::VaultRead, "ForbiddenByRbac");
    world.canary_report_of(Component::Disk).failure.as_mut().unwrap().message = message.clone();
    let (_, _, found) = world.condition(VALID_AZURE_IDENTITIES);
    assert!(found.contains(&message), "{found}");
}

#[test]
fn message_has_the_complete_scopes_of_nine_missing_permissions() {
    // The second case has the longest names that Azure allows.
    for (group, vault, length) in [(40, 18, 60), (90, 24, 127)] {
        let (group, vault) = ("g".repeat(group), "v".repeat(vault));
        let secret = |component: Component| format!("{:s<length$}", component.name());
        let permission = |component: Component| {
            format!(
                "action 'Microsoft.KeyVault/vaults/secrets/getSecret/action' at '/subscriptions/{}/\
                 resourceGroups/{group}/providers/Microsoft.KeyVault/vaults/{vault}/secrets/{}'",
                "0".repeat(36),
                secret(component)
            )
        };
        let mut world = StatusFixture::all_ready();
        for component in Component::ALL {
            world.report_canary_failure(component, Hop::VaultRead, "ForbiddenByRbac");
            world.canary_report_of(component).failure.as_mut().unwrap().message = format!(
                "could not read secret `{}`: the vault forbids it: 403 Forbidden ForbiddenByRbac \
                 ({} is not authorized for appid=0;oid=0)",
                secret(component),
                permission(component)
            );
        }
        let (_, _, message) = world.condition(VALID_AZURE_IDENTITIES);
        assert!(message.len() <= 4_096);
        let lines: Vec<_> = message.split(" | ").collect();
        assert_eq!(lines.len(), 9, "{message}");
        for component in Component::ALL {
            let line = lines.iter().find(|line| line.starts_with(component.name())).unwrap();
            assert!(line.contains(&permission(component)), "{component}: {line}");
        }
    }
}

#[test]
fn message_names_every_broken_identity_despite_long_texts() {
    let mut world = StatusFixture::all_ready();
    for component in Component::ALL {
        world.report_canary_failure(component, Hop::EntraToken, "AADSTS700027");
        world.canary_report_of(component).failure.as_mut().unwrap().message = "long ".repeat(1_000);
    }
    let (_, _, message) = world.condition(VALID_AZURE_IDENTITIES);
    assert!(message.len() <= 4_096);
    for component in Component::ALL {
        assert!(message.contains(&format!("{component} at entra-token")), "{component}");
    }
}

fn kms_fixture(changes: &[(&str, Value)]) -> StatusFixture {
    let changes: Vec<_> =
        changes.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
    StatusFixture::for_cluster(validated_cluster(&example_with_changes(&changes)))
}

fn private_vault_fixture() -> StatusFixture {
    let field = format!("{KMS}/keyVaultAccess");
    kms_fixture(&[(field.as_str(), json!("Private"))])
}

#[test]
fn the_kms_condition_has_every_row_of_the_reference() {
    let kms_condition = |world: &StatusFixture| world.condition(VALID_KMS_CONFIG);
    let none = kms_fixture(&[("/spec/secretEncryption", Value::Null)]);
    assert_eq!(
        kms_condition(&none),
        condition_content("Unknown", "StatusUnknown", "Azure KMS is not configured")
    );

    let unreachable = "Private Key Vault endpoint is not reachable from the management cluster";
    assert_eq!(
        kms_condition(&private_vault_fixture()),
        condition_content("Unknown", "StatusUnknown", unreachable)
    );

    let mut world = StatusFixture::all_ready();
    assert_eq!(kms_condition(&world).1, "StatusUnknown");
    world.report_probe(
        Component::ControlPlaneOperator,
        CanaryProbeReport::ENCRYPTION_PROBE,
        true,
        "AsExpected",
    );
    assert_eq!(kms_condition(&world), condition_content("True", "AsExpected", "All is well"));

    for reason in ["InvalidAzureCredentials", "AzureError"] {
        let mut world = StatusFixture::all_ready();
        world.report_probe(
            Component::ControlPlaneOperator,
            CanaryProbeReport::ENCRYPTION_PROBE,
            false,
            reason,
        );
        let message = "controlPlaneOperator reports encryption; next: do this";
        assert_eq!(kms_condition(&world), condition_content("False", reason, message));
    }
    let mut world = StatusFixture::all_ready();
    world.report_probe(Component::Kms, CanaryProbeReport::ENCRYPTION_PROBE, false, "no word");
    assert_eq!(kms_condition(&world).1, "AzureError");
}

#[test]
fn a_cloud_whose_vaults_have_no_known_name_is_an_invalid_credential() {
    let mut world = StatusFixture::all_ready();
    world.cluster.azure.cloud = lanyard_vocabulary::Cloud::Stack;
    let (status, reason, message) = world.condition(VALID_KMS_CONFIG);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidAzureCredentials"));
    assert!(message.contains("AzureStackCloud"), "{message}");
}

#[test]
fn failed_encryption_probe_takes_precedence() {
    for (bad, good) in [
        (Component::Kms, Component::ControlPlaneOperator),
        (Component::ControlPlaneOperator, Component::Kms),
    ] {
        let mut world = StatusFixture::all_ready();
        world.report_probe(good, CanaryProbeReport::ENCRYPTION_PROBE, true, "AsExpected");
        world.report_probe(bad, CanaryProbeReport::ENCRYPTION_PROBE, false, "AzureError");
        let (status, _, message) = world.condition(VALID_KMS_CONFIG);
        assert_eq!(
            (status, message),
            ("False".to_owned(), format!("{bad} reports encryption; next: do this"))
        );
    }
}

#[test]
fn private_vault_condition_uses_the_api_server_probe() {
    let mut world = private_vault_fixture();
    world.report_probe(
        Component::ControlPlaneOperator,
        CanaryProbeReport::ENCRYPTION_PROBE,
        false,
        "AzureError",
    );
    assert_eq!(world.condition(VALID_KMS_CONFIG).0, "Unknown");
    world.report_probe(Component::Kms, CanaryProbeReport::ENCRYPTION_PROBE, true, "AsExpected");
    assert_eq!(world.condition(VALID_KMS_CONFIG).0, "True");
}

#[test]
fn probes_of_a_pod_that_does_not_count_do_not_count() {
    let mut world = StatusFixture::all_ready();
    world.report_probe(Component::Kms, CanaryProbeReport::ENCRYPTION_PROBE, false, "AzureError");
    world.pod_mut("kube-apiserver").is_ready = false;
    assert_eq!(world.condition(VALID_KMS_CONFIG).0, "Unknown");
}

#[test]
fn network_condition_blocks_nothing() {
    let mut world = StatusFixture::all_ready();
    assert_eq!(world.condition(VALID_NETWORK).0, "Unknown");
    world.report_probe(
        Component::ControlPlaneOperator,
        CanaryProbeReport::NETWORK_PROBE,
        false,
        "",
    );
    let expected = condition_content(
        "False",
        "InsufficientClusterCapabilities",
        "controlPlaneOperator reports network; next: do this",
    );
    assert_eq!(world.condition(VALID_NETWORK), expected);
    assert_eq!(world.condition(VALID_AZURE_IDENTITIES).0, "True");
    world.canary_report_of(Component::ControlPlaneOperator).probes.clear();
    world.report_probe(
        Component::ControlPlaneOperator,
        CanaryProbeReport::NETWORK_PROBE,
        true,
        "AsExpected",
    );
    assert_eq!(
        world.condition(VALID_NETWORK),
        condition_content("True", "AsExpected", "All is well")
    );
}

#[test]
fn overdue_renewal_is_reported_while_the_identity_is_ready() {
    let mut world = StatusFixture::all_ready();
    let (_, renewal, end) = credential_timestamps(0);
    world.now = renewal + 24.hours() + 10.minutes();
    assert_eq!(world.condition(VALID_AZURE_IDENTITIES).0, "True");
    let (status, reason, message) = world.condition(CREDENTIALS_RENEWED);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RenewalOverdue"));
    assert!(message.contains(&end.to_string()), "{message}");
    let status = world.status();
    let next = next_status_change_at(&world.inputs(), &status).unwrap();
    assert!(next < end && next > end - 10.minutes(), "{next}");

    world.canary_report_of(Component::Disk).credential = None;
    world.volume_report_of(Component::Disk).objects.clear();
    world.now = noon();
    let (status, reason, message) = world.condition(CREDENTIALS_RENEWED);
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NotReported"));
    assert!(message.starts_with("disk: "), "{message}");
}

#[test]
fn drift_is_listed_in_the_status_and_summed_up() {
    let mut world = StatusFixture::all_ready();
    let (field, message) = ("spec".to_owned(), "another has it, too".to_owned());
    let drift = crate::drift::Drift::SharedCredential { field, message };
    world.drift_findings.push(DriftFinding { drift, since: noon() });
    let status = world.status();
    assert_eq!(status.drift.len(), 1);
    assert_eq!(status.drift[0].subject, "spec");
    assert!(status.drift[0].message.contains("; next: "));
    let (status, reason, _) = world.condition(IDENTITIES_IN_STEP);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "SharedCredential"));
}

#[test]
fn the_time_of_a_transition_is_that_of_the_status_alone() {
    let time = |world: &StatusFixture, kind: &str| {
        let all = world.status().conditions;
        all.into_iter().find(|it| it.type_ == kind).unwrap().last_transition_time.0
    };
    let mut world =
        StatusFixture::all_ready().with_current_status_as_previous().advanced_by_minutes(5);
    assert_eq!(time(&world, VALID_AZURE_IDENTITIES), noon());
    world.report_canary_failure(Component::Disk, Hop::Granted, "AuthorizationFailed");
    assert_eq!(time(&world, VALID_AZURE_IDENTITIES), noon() + 5.minutes());
    let mut world = world.with_current_status_as_previous().advanced_by_minutes(5);
    world.report_canary_failure(Component::Disk, Hop::EntraToken, "AADSTS700027");
    assert_eq!(time(&world, VALID_AZURE_IDENTITIES), noon() + 5.minutes());
    assert!(world.status().conditions.iter().all(|it| it.observed_generation == Some(3)));
}
