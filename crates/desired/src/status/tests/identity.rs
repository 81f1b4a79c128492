//! The status of one identity: one test for every rule.

use super::*;

const DISK: Component = Component::Disk;

#[test]
fn identity_proven_by_its_canary_is_ready_at_granted() {
    let status = StatusFixture::all_ready().status();
    assert_eq!(status.identities.len(), 9);
    assert_eq!(status.observed_generation, Some(3));
    for identity in &status.identities {
        assert_eq!(
            identity_summary(identity),
            ("True", "AsExpected", Some("granted"), None),
            "{identity:?}"
        );
        assert_eq!(identity.message, "");
        assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
        let (begin, renewal, end) = credential_timestamps(0);
        assert_eq!(identity.not_before, Some(begin));
        assert_eq!((identity.renew_after, identity.not_after), (Some(renewal), Some(end)));
        assert_eq!(identity.cannot_renew_after, Some(end));
        assert_eq!(identity.since, Some(noon()));
    }
}

#[test]
fn one_broken_identity_leaves_the_other_eight_as_they_are() {
    for broken in Component::ALL {
        let mut world = StatusFixture::all_ready();
        world.report_canary_failure(broken, Hop::EntraToken, "AADSTS700027");
        for identity in world.status().identities {
            let expected = if identity.component == broken.name() { "False" } else { "True" };
            assert_eq!(identity.ready, expected, "{broken}: {}", identity.component);
        }
    }
}

#[test]
fn a_canary_names_the_hop_the_code_and_the_next_step() {
    let mut world = StatusFixture::all_ready();
    world.report_canary_failure(DISK, Hop::EntraToken, "AADSTS700027");
    let identity = world.identity_status(DISK);
    let expected = ("False", "AADSTS700027", Some("credential"), Some("entra-token"));
    assert_eq!(identity_summary(&identity), expected);
    assert_eq!(
        identity.message,
        "pod `azure-disk-csi-driver-controller`: what came back; next: do this"
    );
    assert_eq!(identity.since, Some(at("2026-06-01T11:00:00Z")));
}

#[test]
fn canary_failure_message_includes_the_node_outcome() {
    let mut world = StatusFixture::all_ready();
    world.report_canary_failure(DISK, Hop::EntraToken, "AADSTS700027");
    world.report_outcome(DISK, OutcomeCode::VaultThrottled);
    let identity = world.identity_status(DISK);
    assert_eq!(identity.failed_hop.as_deref(), Some("entra-token"));
    let expected = "what came back; the node reports `VaultThrottled`; next: do this";
    assert!(identity.message.ends_with(expected), "{}", identity.message);

    world.report_outcome(DISK, OutcomeCode::VaultForbidden);
    let identity = world.identity_status(DISK);
    assert_eq!(identity.failed_hop.as_deref(), Some("vault-read"), "the first broken hop");
    let expected = "what came of VaultForbidden; its canary reports `AADSTS700027`; next: ";
    assert!(identity.message.contains(expected), "{}", identity.message);
}

#[test]
fn non_healing_outcome_breaks_identity_with_usable_credential() {
    for code in OutcomeCode::ALL
        .iter()
        .filter(|it| it.recovery_mode() == lanyard_vocabulary::RecoveryMode::Never)
    {
        let mut world = StatusFixture::all_ready();
        world.report_outcome(DISK, *code);
        let identity = world.identity_status(DISK);
        let before = crate::report_text::previous_hop(code.hop()).map(Hop::name);
        assert_eq!(
            identity_summary(&identity),
            ("False", code.name(), before, Some(code.hop().name()))
        );
        assert!(identity.message.contains("the mounted credential is still valid"), "{code}");
        assert!(identity.message.ends_with(&format!("next: {}", code.hint())), "{code}");
        assert_eq!(identity.since, Some(at("2026-06-01T10:00:00Z")));
    }
}

#[test]
fn self_healing_outcome_is_reported_without_breaking_identity() {
    for code in OutcomeCode::ALL
        .iter()
        .filter(|it| it.recovery_mode() != lanyard_vocabulary::RecoveryMode::Never)
    {
        let mut world = StatusFixture::all_ready();
        world.report_outcome(DISK, *code);
        let identity = world.identity_status(DISK);
        let expected = ("True", code.name(), Some("granted"), Some(code.hop().name()));
        assert_eq!(identity_summary(&identity), expected);
        assert!(identity.message.contains(&format!("what came of {code}")), "{code}");
    }
}

#[test]
fn unknown_outcome_code_is_shown_and_canary_decides() {
    let mut world = StatusFixture::all_ready();
    world.volume_report_of(DISK).outcome = Some("NewTrouble".to_owned());
    world.volume_report_of(DISK).last_good_hop = Some("vault-read".to_owned());
    let expected = ("True", "NewTrouble", Some("granted"), Some("decode"));
    assert_eq!(identity_summary(&world.identity_status(DISK)), expected);
    world.volume_report_of(DISK).outcome = Some("no reason at all".to_owned());
    assert_eq!(world.identity_status(DISK).reason, "IdentityBroken");
}

#[test]
fn expired_loaded_credential_breaks_the_identity() {
    let end = credential_timestamps(0).2;
    let mut world = StatusFixture::all_ready();
    world.now = end;
    let identity = world.identity_status(DISK);
    let expected = ("False", "CredentialExpired", Some("file"), Some("credential"));
    assert_eq!(identity_summary(&identity), expected);
    assert_eq!(identity.since, Some(end));
    assert!(identity.message.contains("no newer one was mounted"), "{}", identity.message);

    for code in [OutcomeCode::VaultThrottled, OutcomeCode::VaultForbidden] {
        world.report_outcome(DISK, code);
        let identity = world.identity_status(DISK);
        let expected = ("False", code.name(), Some("imds-token"), Some("vault-read"));
        assert_eq!(identity_summary(&identity), expected);
        assert!(!identity.message.contains("still valid"), "{}", identity.message);
    }
}

#[test]
fn expired_credential_hint_fits_the_mounted_file() {
    let (begin, _, end) = credential_timestamps(0);
    let renew = "no newer one was mounted; next: renew the secret";
    let certificate =
        "later expiry than its certificate; next: renew the secret in the vault, with";
    let restart = "a newer one is mounted but not loaded; next: restart the pod";
    // The node's report about the file.
    for (not_before, not_after, expected) in [
        (Some(begin), Some(end), renew),
        (Some(begin), None, renew),
        (Some(begin), Some(end + 1.hour()), certificate),
        (Some(begin + 1.hour()), Some(end + 1.hour()), restart),
        (None, Some(end + 1.hour()), restart),
    ] {
        let mut world = StatusFixture::all_ready();
        world.now = end;
        let object = &mut world.volume_report_of(DISK).objects[0];
        (object.not_before, object.not_after) = (not_before, not_after);
        let identity = world.identity_status(DISK);
        assert_eq!((identity.reason.as_str(), identity.since), ("CredentialExpired", Some(end)));
        assert!(identity.message.contains(expected), "{expected}: {}", identity.message);
    }
}

#[test]
fn without_a_canary_the_node_alone_can_say_that_the_credential_ended() {
    let mut world = StatusFixture::all_ready();
    world.now = credential_timestamps(0).2;
    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    assert_eq!(world.identity_status(DISK).reason, "CredentialExpired");
}

#[test]
fn unproven_identity_is_unknown_and_names_the_missing_report() {
    let mut world = StatusFixture::all_ready();
    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    let identity = world.identity_status(DISK);
    assert_eq!(identity_summary(&identity), ("Unknown", "NotProven", Some("file"), None));
    assert_eq!(
        identity.message,
        "pod `azure-disk-csi-driver-controller`: the file is mounted, and no canary runs in it"
    );
    assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
    assert_eq!(identity.not_after, Some(credential_timestamps(0).2));

    world.volume_of_component(DISK).report = StatusReportAnnotation::Absent;
    let identity = world.identity_status(DISK);
    assert!(identity.message.ends_with("reports only the mounted version"));
    assert_eq!((identity.loaded_version.as_deref(), identity.not_after), (Some("v1"), None));

    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Unreadable;
    assert!(
        world.identity_status(DISK).message.contains("the report of its canary cannot be parsed")
    );
    world.pod_of_component(DISK).canary_report =
        StatusReportAnnotation::Parsed(canary_report(Component::File));
    assert!(world.identity_status(DISK).message.contains("its canary proves `file`"));

    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    world.volumes.retain(|volume| volume.class_name != DISK.definition().secret_provider_class);
    let expected = ("Unknown", "NotReported", Some("spc"), None);
    assert_eq!(identity_summary(&world.identity_status(DISK)), expected);
}

#[test]
fn missing_volume_report_keeps_a_canary_proven_identity_ready() {
    let mut world = StatusFixture::all_ready();
    world.volume_of_component(DISK).report = StatusReportAnnotation::Absent;
    let identity = world.identity_status(DISK);
    assert_eq!(identity_summary(&identity), ("True", "AsExpected", Some("granted"), None));
    assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
    assert_eq!(identity.not_after, Some(credential_timestamps(0).2));
    world.volumes.clear();
    let identity = world.identity_status(DISK);
    assert_eq!((identity.ready.as_str(), identity.loaded_version), ("True", None));
}

#[test]
fn canary_before_its_final_hop_proves_nothing() {
    let mut world = StatusFixture::all_ready();
    for (hop, ready) in
        [(None, "Unknown"), (Some("entra-token"), "Unknown"), (Some("refused"), "True")]
    {
        world.canary_report_of(DISK).last_good_hop = hop.map(str::to_owned);
        assert_eq!(world.identity_status(DISK).ready, ready, "{hop:?}");
    }
}

/// Returns the components that a token alone proves.
fn components_proven_by_a_token(mut world: StatusFixture) -> Vec<String> {
    let components: Vec<_> =
        world.cluster.running_components().map(|(component, _)| component).collect();
    for component in components {
        world.canary_report_of(component).last_good_hop = Some("entra-token".to_owned());
    }
    let identities = world.status().identities.into_iter();
    identities.filter(|it| it.ready == "True").map(|it| it.component).collect()
}

#[test]
fn a_token_proves_the_identity_of_a_canary_that_is_given_no_call_and_of_no_other() {
    let mut world = StatusFixture::all_ready();
    assert!(components_proven_by_a_token(world.clone()).is_empty());
    world.templates = WorkloadTemplates::parse("canary: {calls: {disk: ''}}").unwrap();
    assert_eq!(components_proven_by_a_token(world), ["disk"]);

    let hsm = (format!("{KMS}/keyVaultType"), json!("ManagedHSM"));
    let mut world = StatusFixture::for_cluster(validated_cluster(&example_with_changes(&[hsm])));
    assert_eq!(components_proven_by_a_token(world.clone()), ["kms"]);
    let call = "canary: {calls: {kms: 'GET https://m.managedhsm.azure.net/keys?api-version=7.4'}}";
    world.templates = WorkloadTemplates::parse(call).unwrap();
    assert!(components_proven_by_a_token(world).is_empty());

    let private = (format!("{KMS}/keyVaultAccess"), json!("Private"));
    let mut world =
        StatusFixture::for_cluster(validated_cluster(&example_with_changes(&[private])));
    assert_eq!(components_proven_by_a_token(world.clone()), ["kms"]);
    world.private_router = Some("172.30.0.100".parse().unwrap());
    assert!(components_proven_by_a_token(world).is_empty());

    let stack = (format!("{AZURE}/cloud"), json!("AzureStackCloud"));
    let world = StatusFixture::for_cluster(validated_cluster(&example_with_changes(&[stack])));
    assert_eq!(components_proven_by_a_token(world).len(), 9);
}

#[test]
fn invalid_cluster_keeps_the_proven_hop_of_its_canary() {
    let hsm = (format!("{KMS}/keyVaultType"), json!("ManagedHSM"));
    let mut world = StatusFixture::for_cluster(validated_cluster(&example_with_changes(&[hsm])));
    world.canary_report_of(Component::Kms).last_good_hop = Some("entra-token".to_owned());
    world.previous_status = Some(world.status());
    let problems = ValidationProblems::default();
    let observed =
        IdentityStatusInputs { cluster: ClusterValidation::Invalid(&problems), ..world.inputs() };
    assert!(identities_status(&observed).identities.iter().all(|it| it.ready == "True"));
}

#[test]
fn deleted_and_unready_pods_are_not_counted() {
    let breaks: [fn(&mut ObservedPod); 3] =
        [|pod| pod.is_ready = false, |pod| pod.is_deleting = true, |pod| pod.class_names.clear()];
    for change in breaks {
        let mut world = StatusFixture::all_ready();
        change(world.pod_of_component(DISK));
        let identity = world.identity_status(DISK);
        assert_eq!(identity_summary(&identity), ("Unknown", "NotReported", Some("spc"), None));
        assert_eq!((identity.loaded_version, identity.not_after), (None, None));
    }
}

#[test]
fn unready_pod_is_reported_with_its_volume_failure() {
    let mut world = StatusFixture::all_ready();
    world.pod_of_component(DISK).is_ready = false;
    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    let message = world.identity_status(DISK).message;
    assert!(message.ends_with("is not ready; its events say why"), "{message}");
    world.report_outcome(DISK, OutcomeCode::VaultForbidden);
    let message = world.identity_status(DISK).message;
    assert_eq!(
        message,
        "pod `azure-disk-csi-driver-controller` of `azure-disk-csi-driver-controller` is not ready: VaultForbidden: what came of VaultForbidden"
    );
}

#[test]
fn a_volume_of_an_earlier_pod_of_the_same_name_is_not_its_volume() {
    let mut world = StatusFixture::all_ready();
    world.volume_of_component(DISK).pod_uid = Some("another".to_owned());
    assert_eq!(world.identity_status(DISK).loaded_version, None);
    world.volume_of_component(DISK).pod_uid = None;
    assert_eq!(world.identity_status(DISK).loaded_version.as_deref(), Some("v1"));
}

#[test]
fn stamps_of_another_version_are_not_those_of_the_mounted_one() {
    let mut world = StatusFixture::all_ready();
    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    world.volume_report_of(DISK).objects[0].version = "v0".to_owned();
    let identity = world.identity_status(DISK);
    assert_eq!((identity.loaded_version.as_deref(), identity.not_after), (Some("v1"), None));
    world.volume_of_component(DISK).objects[0].0 = "secret/other".to_owned();
    assert_eq!(world.identity_status(DISK).loaded_version, None);
}

#[test]
fn rollout_reports_worst_pod_and_oldest_credential() {
    let consumer = &DISK.consumers()[0];
    let mut world = StatusFixture::all_ready();
    world.add_ready_pod(DISK, consumer, "new");
    let class = DISK.definition().secret_provider_class;
    let id = world.volume_of_component(DISK).objects[0].0.clone();
    *world.volume_of_pod(DISK, "new") =
        observed_volume("new", class, &id, "v2", credential_timestamps(10));
    parsed_mut(&mut world.pod_mut("new").canary_report).credential = None;
    let identity = world.identity_status(DISK);
    assert_eq!((identity.ready.as_str(), identity.loaded_version.as_deref()), ("True", Some("v1")));
    assert_eq!(identity.not_after, Some(credential_timestamps(0).2));

    world.pod_mut("new").canary_report = StatusReportAnnotation::Absent;
    assert_eq!(world.identity_status(DISK).ready, "Unknown");
    world.report_canary_failure(DISK, Hop::Granted, "AuthorizationFailed");
    assert_eq!(world.identity_status(DISK).reason, "AuthorizationFailed");
    parsed_mut(&mut world.volume_of_pod(DISK, "new").report).outcome =
        Some("VaultForbidden".to_owned());
    let identity = world.identity_status(DISK);
    assert_eq!(identity.failed_hop.as_deref(), Some("vault-read"), "the first broken hop");
    assert!(identity.message.starts_with("pod `new`"), "{}", identity.message);

    world.pod_of_component(DISK).is_deleting = true;
    assert_eq!(world.identity_status(DISK).loaded_version.as_deref(), Some("v2"));
}

#[test]
fn silent_pod_makes_identity_unknown_after_settling_period() {
    let mut world = StatusFixture::all_ready();
    world.add_ready_pod(DISK, &DISK.consumers()[0], "new");
    world.pod_mut("new").canary_report = StatusReportAnnotation::Absent;
    world.pod_mut("new").started_at = Some(noon() - 119.seconds());
    assert_eq!(world.identity_status(DISK).ready, "True");
    let observed = world.inputs();
    let next = next_status_change_at(&observed, &world.status());
    assert_eq!(next, Some(noon() + 1.second()));
    world.now += 1.second();
    assert_eq!(world.identity_status(DISK).ready, "Unknown");

    world.pod_mut("new").started_at = Some(world.now);
    world.report_canary_failure(DISK, Hop::Granted, "AuthorizationFailed");
    assert_eq!(world.identity_status(DISK).ready, "False");
}

/// Replaces a pod by a new one without a report.
fn with_replaced_pod(world: &StatusFixture) -> StatusFixture {
    let mut world = world.clone();
    world.add_ready_pod(DISK, &DISK.consumers()[0], "new");
    let (now, old) = (world.now, world.pod_of_component(DISK));
    (old.is_deleting, old.deletion_deadline) = (true, Some(now + 30.seconds()));
    let new = world.pod_mut("new");
    (new.canary_report, new.created_at, new.started_at) =
        (StatusReportAnnotation::Absent, Some(now), Some(now));
    world
}

#[test]
fn rollout_keeps_identity_status_until_the_new_pod_reports() {
    let good = StatusFixture::all_ready().with_current_status_as_previous();
    let before = status_json(&good.status());
    let mut world = with_replaced_pod(&good);
    assert_eq!(status_json(&world.status()), before);
    // With host networking, the old pod is deleted before the new one is ready.
    world.pod_mut("new").is_ready = false;
    assert_eq!(status_json(&world.status()), before);
    world.pods.retain(|pod| pod.name != "new");
    assert_eq!(status_json(&world.status()), before);
    assert_eq!(
        next_status_change_at(&world.inputs(), &world.status()),
        Some(noon() + 30.seconds())
    );

    // The wait is limited.
    let mut world = with_replaced_pod(&good).advanced_by_minutes(2);
    assert_eq!(world.identity_status(DISK).reason, "NotProven");
    world.pod_mut("new").is_ready = false;
    assert_eq!(world.identity_status(DISK).ready, "Unknown");

    // The status is not kept beyond the credential's expiry, nor against a reported failure.
    let mut world = with_replaced_pod(&good);
    let end = world.now;
    let all = &mut world.previous_status.as_mut().unwrap().identities;
    all.iter_mut().find(|it| it.component == "disk").unwrap().not_after = Some(end);
    assert_eq!(world.identity_status(DISK).ready, "Unknown");
    let mut world = with_replaced_pod(&good);
    world.pod_mut("new").canary_report = StatusReportAnnotation::Parsed(canary_report(DISK));
    parsed_mut(&mut world.pod_mut("new").canary_report).failure = Some(HopFailure {
        hop: "granted".to_owned(),
        code: "AuthorizationFailed".to_owned(),
        message: "what came back".to_owned(),
        hint: String::new(),
        since: noon(),
    });
    assert_eq!(world.identity_status(DISK).reason, "AuthorizationFailed");
}

#[test]
fn deleting_cluster_keeps_last_status_and_reports_failures() {
    let mut world = StatusFixture::all_ready();
    world.report_probe(Component::Kms, CanaryProbeReport::ENCRYPTION_PROBE, true, "AsExpected");
    let mut world = StatusFixture { is_deleting: true, ..world.with_current_status_as_previous() };
    world.report_canary_failure(DISK, Hop::EntraToken, "AADSTS700016");
    assert_eq!(world.identity_status(DISK).reason, "AADSTS700016");
    let mut world = world.with_current_status_as_previous();
    let before = status_json(&world.status());
    for pod in &mut world.pods {
        pod.is_deleting = true;
    }
    assert_eq!(status_json(&world.status()), before);
    world.pods.clear();
    world.volumes.clear();
    world.classes = Some(BTreeSet::new());
    assert_eq!(status_json(&world.status()), before);
    assert_eq!(status_transitions(world.previous_status.as_ref(), &world.status()), []);
}

#[test]
fn mounted_but_unloaded_version_is_not_reported() {
    let mut world = StatusFixture::all_ready().with_current_status_as_previous();
    let id = world.volume_of_component(DISK).objects[0].0.clone();
    let (pod, class) = (DISK.consumers()[0].deployment, DISK.definition().secret_provider_class);
    *world.volume_of_component(DISK) =
        observed_volume(pod, class, &id, "v2", credential_timestamps(10));
    let identity = world.identity_status(DISK);
    assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
    assert_eq!(identity.not_after, Some(credential_timestamps(0).2));
    // After a restart without a stored status, the previously loaded version is unknown.
    world.previous_status = None;
    assert_eq!(world.identity_status(DISK).loaded_version, None);

    // A driver without timestamps reports only that there is another version.
    let mut world = StatusFixture::all_ready().with_current_status_as_previous();
    world.volume_of_component(DISK).report = StatusReportAnnotation::Absent;
    world.volume_of_component(DISK).objects[0].1 = "v2".to_owned();
    assert_eq!(world.identity_status(DISK).loaded_version.as_deref(), Some("v1"));
    world.load_credential(DISK, 10);
    assert_eq!(world.identity_status(DISK).loaded_version.as_deref(), Some("v2"));
}

#[test]
fn a_canary_in_a_crash_loop_counts_once_it_has_run_for_a_while() {
    let mut world = StatusFixture::all_ready();
    let pod = world.pod_of_component(DISK);
    (pod.restarts, pod.started_at) = (3, Some(noon() - 1.second()));
    let identity = world.identity_status(DISK);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("Unknown", "NotReported"));
    world.pod_of_component(DISK).restarts = 2;
    assert_eq!(world.identity_status(DISK).ready, "True");
    world.pod_of_component(DISK).restarts = 30;
    world.now += 2.minutes();
    assert_eq!(world.identity_status(DISK).ready, "True");
}

#[test]
fn missing_class_breaks_identity_only_if_pods_mount_it() {
    let mut world = StatusFixture::all_ready();
    world.classes.as_mut().unwrap().remove(DISK.definition().secret_provider_class);
    let expected = ("False", "SecretProviderClassNotFound", Some("hostedcluster"), Some("spc"));
    assert_eq!(identity_summary(&world.identity_status(DISK)), expected);
    world.pods.retain(|pod| pod.name != DISK.consumers()[0].deployment);
    let expected = ("Unknown", "SecretProviderClassNotFound", Some("hostedcluster"), Some("spc"));
    assert_eq!(identity_summary(&world.identity_status(DISK)), expected);
}

#[test]
fn unreadable_classes_do_not_change_pod_reports() {
    let mut world = StatusFixture::all_ready();
    world.classes = None;
    assert_eq!(world.identity_status(DISK).ready, "True");
    world.pods.clear();
    assert_eq!(
        identity_summary(&world.identity_status(DISK)),
        ("Unknown", "NotReported", Some("hostedcluster"), None)
    );
}

#[test]
fn kms_needs_both_consumers_and_second_proves_its_file() {
    let kms = Component::Kms;
    let mut world = StatusFixture::all_ready();
    assert_eq!(
        identity_summary(&world.identity_status(kms)),
        ("True", "AsExpected", Some("granted"), None)
    );

    world.volumes.retain(|it| {
        it.class_name != kms.definition().secret_provider_class
            || it.pod_name != "control-plane-operator"
    });
    let identity = world.identity_status(kms);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("Unknown", "NotReported"));
    assert!(identity.message.starts_with("pod `control-plane-operator`"), "{}", identity.message);

    let mut world = StatusFixture::all_ready();
    parsed_mut(&mut world.volume_of_pod(kms, "control-plane-operator").report).outcome =
        Some("ObjectDisabled".to_owned());
    assert_eq!(world.identity_status(kms).reason, "ObjectDisabled");
    assert_eq!(world.identity_status(Component::ControlPlaneOperator).ready, "True");

    let mut world = StatusFixture::all_ready();
    world.report_canary_failure(Component::ControlPlaneOperator, Hop::EntraToken, "AADSTS7000215");
    assert_eq!(world.identity_status(kms).ready, "True");

    let mut world = StatusFixture::all_ready();
    world.pod_mut("kube-apiserver").is_ready = false;
    let identity = world.identity_status(kms);
    assert_eq!(identity.ready, "Unknown");
    assert!(identity.message.contains("`kube-apiserver` is not ready"), "{}", identity.message);
}

#[test]
fn the_client_id_is_that_of_the_cluster_or_else_of_the_loaded_credential() {
    let mut world = StatusFixture::all_ready();
    let named = world.cluster.identities[&DISK].client_id.unwrap().to_string();
    assert_eq!(world.identity_status(DISK).client_id, Some(named));
    world.cluster.identities.get_mut(&DISK).unwrap().client_id = None;
    assert_eq!(world.identity_status(DISK).client_id.as_deref(), Some(LOADED_CLIENT_ID));
    let odd = "not an id, and far too long to be one of any known kind at all";
    world.canary_report_of(DISK).credential.as_mut().unwrap().client_id = odd.to_owned();
    assert_eq!(world.identity_status(DISK).client_id, None);
}

#[test]
fn times_stay_until_ready_changes() {
    let world =
        StatusFixture::all_ready().with_current_status_as_previous().advanced_by_minutes(10);
    assert_eq!(world.identity_status(DISK).since, Some(noon()));
    let mut world = world.with_current_status_as_previous();
    world.report_outcome(DISK, OutcomeCode::VaultUnavailable);
    assert_eq!(world.identity_status(DISK).since, Some(noon()), "it still works");
    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    assert_eq!(world.identity_status(DISK).since, Some(noon() + 10.minutes()));
    world.report_later_canary_failure(DISK);
    assert_eq!(world.identity_status(DISK).since, Some(noon() + 10.minutes()), "not in the future");
}

impl StatusFixture {
    fn report_later_canary_failure(&mut self, component: Component) {
        self.pod_of_component(component).canary_report =
            StatusReportAnnotation::Parsed(canary_report(component));
        self.report_canary_failure(component, Hop::Granted, "AuthorizationFailed");
        let since = self.now + 1.hour();
        self.canary_report_of(component).failure.as_mut().unwrap().since = since;
    }
}

#[test]
fn reported_texts_become_one_short_line() {
    let mut world = StatusFixture::all_ready();
    world.report_canary_failure(DISK, Hop::Granted, "two words");
    let failure = world.canary_report_of(DISK).failure.as_mut().unwrap();
    failure.message = format!("line\n\u{1b}[31mline {}", "x".repeat(9_000));
    failure.hop = "no hop".to_owned();
    let identity = world.identity_status(DISK);
    assert_eq!(identity.reason, "IdentityBroken");
    assert_eq!(identity.failed_hop.as_deref(), Some("granted"), "the hop after the last good one");
    assert_eq!(identity.message.len(), 1_000);
    assert!(identity.message.ends_with("x…"), "{}", identity.message);
    assert!(!identity.message.chars().any(char::is_control));
}

#[test]
fn invalid_cluster_still_reports_running_identities() {
    let world = StatusFixture::all_ready().with_current_status_as_previous();
    let mut problems = ValidationProblems::default();
    problems.error("spec.infraID", "infraID is required");
    let mut observed = world.inputs();
    observed.cluster = ClusterValidation::Invalid(&problems);
    let status = identities_status(&observed);
    assert_eq!(status.identities.len(), 9);
    assert!(status.identities.iter().all(|it| it.ready == "True"));
    let all = &status.conditions[0];
    assert_eq!((all.status.as_str(), all.reason.as_str()), ("False", "InvalidHostedCluster"));
    assert!(all.message.contains("spec.infraID: infraID is required"), "{}", all.message);

    observed.previous_status = None;
    observed.classes = ObservedClasses::Unknown;
    assert_eq!(identities_status(&observed).identities, []);
}
