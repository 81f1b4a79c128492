//! Every row of every condition.

use super::*;

#[test]
fn what_the_schema_takes_and_lints_name_is_told_once_in_a_condition_of_its_own() {
    let mut world = World::good();
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
    assert_eq!(world.condition(VALID_IDENTITIES).0, "True");
    let told = transitions(Some(&World::good().status()), &world.status());
    assert_eq!(told.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(), ["Linted"]);

    // Of a cluster that cannot be used the errors alone say why.
    let mut problems = world.lints.clone();
    problems.error("spec.infraID", "infraID is required");
    let mut observed = world.observed();
    observed.cluster = ClusterState::Invalid(&problems);
    let all = identities_status(&observed).conditions;
    let message = |kind: &str| &all.iter().find(|it| it.type_ == kind).unwrap().message;
    let expected = "the HostedCluster cannot be used: spec.infraID: infraID is required";
    assert_eq!(message(VALID_IDENTITIES), expected);
    assert!(message(ADVISED_CONFIGURATION).contains("West Europe"));
}

#[test]
fn all_identities_that_work_are_valid() {
    let world = World::good();
    assert_eq!(world.condition(VALID_IDENTITIES), triple("True", "AsExpected", "All is well"));
    assert_eq!(world.condition(CREDENTIALS_RENEWED).0, "True");
    assert_eq!(world.condition(IDENTITIES_IN_STEP).0, "True");
}

#[test]
fn the_broken_identities_are_listed_and_win_over_those_that_nobody_knows() {
    let mut world = World::good();
    world.pod_of(Component::File).canary = Facts::Absent;
    let (status, reason, message) = world.condition(VALID_IDENTITIES);
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NotProven"));
    assert!(message.starts_with("file: "), "{message}");

    world.fail(Component::Disk, Hop::EntraToken, "AADSTS700027");
    let (status, reason, message) = world.condition(VALID_IDENTITIES);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "AADSTS700027"));
    assert_eq!(
        message,
        "disk at entra-token: AADSTS700027: pod `azure-disk-csi-driver-controller`: what came back; next: do this"
    );

    world.fail(Component::Ingress, Hop::Granted, "AuthorizationFailed");
    let (_, reason, message) = world.condition(VALID_IDENTITIES);
    assert_eq!(reason, "IdentitiesBroken");
    assert!(message.starts_with("ingress at granted") && message.contains(" | disk at"));
}

#[test]
fn a_message_names_every_broken_identity_however_long_their_texts_are() {
    let mut world = World::good();
    for component in Component::ALL {
        world.fail(component, Hop::EntraToken, "AADSTS700027");
        world.canary_of(component).failure.as_mut().unwrap().message = "long ".repeat(1_000);
    }
    let (_, _, message) = world.condition(VALID_IDENTITIES);
    assert!(message.len() <= 4_000);
    for component in Component::ALL {
        assert!(message.contains(&format!("{component} at entra-token")), "{component}");
    }
}

fn kms_world(changes: &[(&str, Value)]) -> World {
    let changes: Vec<_> =
        changes.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
    World::of(valid(&changed(&changes)))
}

fn private() -> World {
    let field = format!("{KMS}/keyVaultAccess");
    kms_world(&[(field.as_str(), json!("Private"))])
}

#[test]
fn the_kms_condition_has_every_row_of_the_reference() {
    let told = |world: &World| world.condition(VALID_KMS_CONFIG);
    let none = kms_world(&[("/spec/secretEncryption", Value::Null)]);
    assert_eq!(told(&none), triple("Unknown", "StatusUnknown", "Azure KMS is not configured"));

    let unreachable = "Private Key Vault endpoint is not reachable from the management cluster";
    assert_eq!(told(&private()), triple("Unknown", "StatusUnknown", unreachable));

    let mut world = World::good();
    assert_eq!(told(&world).1, "StatusUnknown");
    world.probe(Component::ControlPlaneOperator, ProbeFacts::ENCRYPTION, true, "AsExpected");
    assert_eq!(told(&world), triple("True", "AsExpected", "All is well"));

    for reason in ["InvalidAzureCredentials", "AzureError"] {
        let mut world = World::good();
        world.probe(Component::ControlPlaneOperator, ProbeFacts::ENCRYPTION, false, reason);
        let message = "controlPlaneOperator tells of encryption; next: do this";
        assert_eq!(told(&world), triple("False", reason, message));
    }
    let mut world = World::good();
    world.probe(Component::Kms, ProbeFacts::ENCRYPTION, false, "no word");
    assert_eq!(told(&world).1, "AzureError");
}

#[test]
fn a_cloud_whose_vaults_have_no_known_name_is_an_invalid_credential() {
    let mut world = World::good();
    world.cluster.azure.cloud = lanyard_vocabulary::Cloud::Stack;
    let (status, reason, message) = world.condition(VALID_KMS_CONFIG);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidAzureCredentials"));
    assert!(message.contains("AzureStackCloud"), "{message}");
}

#[test]
fn of_two_probes_of_the_key_the_bad_one_speaks() {
    for (bad, good) in [
        (Component::Kms, Component::ControlPlaneOperator),
        (Component::ControlPlaneOperator, Component::Kms),
    ] {
        let mut world = World::good();
        world.probe(good, ProbeFacts::ENCRYPTION, true, "AsExpected");
        world.probe(bad, ProbeFacts::ENCRYPTION, false, "AzureError");
        let (status, _, message) = world.condition(VALID_KMS_CONFIG);
        assert_eq!(
            (status, message),
            ("False".to_owned(), format!("{bad} tells of encryption; next: do this"))
        );
    }
}

#[test]
fn a_private_vault_is_judged_from_the_pod_that_reaches_it() {
    let mut world = private();
    world.probe(Component::ControlPlaneOperator, ProbeFacts::ENCRYPTION, false, "AzureError");
    assert_eq!(world.condition(VALID_KMS_CONFIG).0, "Unknown");
    world.probe(Component::Kms, ProbeFacts::ENCRYPTION, true, "AsExpected");
    assert_eq!(world.condition(VALID_KMS_CONFIG).0, "True");
}

#[test]
fn probes_of_a_pod_that_does_not_count_do_not_count() {
    let mut world = World::good();
    world.probe(Component::Kms, ProbeFacts::ENCRYPTION, false, "AzureError");
    world.pod("kube-apiserver").is_ready = false;
    assert_eq!(world.condition(VALID_KMS_CONFIG).0, "Unknown");
}

#[test]
fn the_network_is_told_and_gates_nothing() {
    let mut world = World::good();
    assert_eq!(world.condition(VALID_NETWORK).0, "Unknown");
    world.probe(Component::ControlPlaneOperator, ProbeFacts::NETWORK, false, "");
    let expected = triple(
        "False",
        "InsufficientClusterCapabilities",
        "controlPlaneOperator tells of network; next: do this",
    );
    assert_eq!(world.condition(VALID_NETWORK), expected);
    assert_eq!(world.condition(VALID_IDENTITIES).0, "True");
    world.canary_of(Component::ControlPlaneOperator).probes.clear();
    world.probe(Component::ControlPlaneOperator, ProbeFacts::NETWORK, true, "AsExpected");
    assert_eq!(world.condition(VALID_NETWORK), triple("True", "AsExpected", "All is well"));
}

#[test]
fn a_renewal_that_is_overdue_is_told_while_the_identity_still_works() {
    let mut world = World::good();
    let (_, renewal, end) = stamps(0);
    world.now = renewal + 24.hours() + 10.minutes();
    assert_eq!(world.condition(VALID_IDENTITIES).0, "True");
    let (status, reason, message) = world.condition(CREDENTIALS_RENEWED);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RenewalOverdue"));
    assert!(message.contains(&end.to_string()), "{message}");
    let status = world.status();
    let next = next_look(&world.observed(), &status).unwrap();
    assert!(next < end && next > end - 10.minutes(), "{next}");

    world.canary_of(Component::Disk).credential = None;
    world.facts_of(Component::Disk).objects.clear();
    world.now = noon();
    let (status, reason, message) = world.condition(CREDENTIALS_RENEWED);
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NotReported"));
    assert!(message.starts_with("disk: "), "{message}");
}

#[test]
fn drift_is_listed_in_the_status_and_summed_up() {
    let mut world = World::good();
    let (field, message) = ("spec".to_owned(), "another has it, too".to_owned());
    let drift = crate::drift::Drift::SharedCredential { field, message };
    world.drift.push(Finding { drift, since: noon() });
    let status = world.status();
    assert_eq!(status.drift.len(), 1);
    assert_eq!(status.drift[0].subject, "spec");
    assert!(status.drift[0].message.contains("; next: "));
    let (status, reason, _) = world.condition(IDENTITIES_IN_STEP);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "SharedCredential"));
}

#[test]
fn the_time_of_a_transition_is_that_of_the_status_alone() {
    let time = |world: &World, kind: &str| {
        let all = world.status().conditions;
        all.into_iter().find(|it| it.type_ == kind).unwrap().last_transition_time.0
    };
    let mut world = World::good().settled().later(5);
    assert_eq!(time(&world, VALID_IDENTITIES), noon());
    world.fail(Component::Disk, Hop::Granted, "AuthorizationFailed");
    assert_eq!(time(&world, VALID_IDENTITIES), noon() + 5.minutes());
    let mut world = world.settled().later(5);
    world.fail(Component::Disk, Hop::EntraToken, "AADSTS700027");
    assert_eq!(time(&world, VALID_IDENTITIES), noon() + 5.minutes());
    assert!(world.status().conditions.iter().all(|it| it.observed_generation == Some(3)));
}
