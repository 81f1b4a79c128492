//! What one identity comes to: a row for every rule.

use super::*;

const DISK: Component = Component::Disk;

#[test]
fn what_every_canary_proved_is_ready_up_to_the_granted_call() {
    let status = World::good().status();
    assert_eq!(status.identities.len(), 9);
    assert_eq!(status.observed_generation, Some(3));
    for identity in &status.identities {
        assert_eq!(said(identity), ("True", "AsExpected", Some("granted"), None), "{identity:?}");
        assert_eq!(identity.message, "");
        assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
        let (begin, renewal, end) = stamps(0);
        assert_eq!(identity.not_before, Some(begin));
        assert_eq!((identity.renew_after, identity.not_after), (Some(renewal), Some(end)));
        assert_eq!(identity.cannot_renew_after, Some(end));
        assert_eq!(identity.since, Some(noon()));
    }
}

#[test]
fn one_broken_identity_leaves_the_other_eight_as_they_are() {
    for broken in Component::ALL {
        let mut world = World::good();
        world.fail(broken, Hop::EntraToken, "AADSTS700027");
        for identity in world.status().identities {
            let expected = if identity.component == broken.name() { "False" } else { "True" };
            assert_eq!(identity.ready, expected, "{broken}: {}", identity.component);
        }
    }
}

#[test]
fn a_canary_names_the_hop_the_code_and_the_next_step() {
    let mut world = World::good();
    world.fail(DISK, Hop::EntraToken, "AADSTS700027");
    let identity = world.identity(DISK);
    let expected = ("False", "AADSTS700027", Some("credential"), Some("entra-token"));
    assert_eq!(said(&identity), expected);
    assert_eq!(
        identity.message,
        "pod `azure-disk-csi-driver-controller`: what came back; next: do this"
    );
    assert_eq!(identity.since, Some(at("2026-06-01T11:00:00Z")));
}

#[test]
fn what_the_node_says_stands_beside_the_failure_of_the_canary() {
    let mut world = World::good();
    world.fail(DISK, Hop::EntraToken, "AADSTS700027");
    world.outcome(DISK, OutcomeCode::VaultThrottled);
    let identity = world.identity(DISK);
    assert_eq!(identity.failed_hop.as_deref(), Some("entra-token"));
    let told = "what came back; the node says `VaultThrottled`; next: do this";
    assert!(identity.message.ends_with(told), "{}", identity.message);

    world.outcome(DISK, OutcomeCode::VaultForbidden);
    let identity = world.identity(DISK);
    assert_eq!(identity.failed_hop.as_deref(), Some("vault-read"), "the first broken hop");
    let told = "what came of VaultForbidden; its canary says `AADSTS700027`; next: ";
    assert!(identity.message.contains(told), "{}", identity.message);
}

#[test]
fn what_only_somebody_can_mend_breaks_the_identity_though_its_credential_still_serves() {
    for code in
        OutcomeCode::ALL.iter().filter(|it| it.healing() == lanyard_vocabulary::Healing::Never)
    {
        let mut world = World::good();
        world.outcome(DISK, *code);
        let identity = world.identity(DISK);
        let before = crate::told::hop_before(code.hop()).map(Hop::name);
        assert_eq!(said(&identity), ("False", code.name(), before, Some(code.hop().name())));
        assert!(identity.message.contains("the mounted credential still serves"), "{code}");
        assert!(identity.message.ends_with(&format!("next: {}", code.hint())), "{code}");
        assert_eq!(identity.since, Some(at("2026-06-01T10:00:00Z")));
    }
}

#[test]
fn what_may_heal_by_itself_is_named_and_breaks_nothing_while_the_canary_is_served() {
    for code in
        OutcomeCode::ALL.iter().filter(|it| it.healing() != lanyard_vocabulary::Healing::Never)
    {
        let mut world = World::good();
        world.outcome(DISK, *code);
        let identity = world.identity(DISK);
        let expected = ("True", code.name(), Some("granted"), Some(code.hop().name()));
        assert_eq!(said(&identity), expected);
        assert!(identity.message.contains(&format!("what came of {code}")), "{code}");
    }
}

#[test]
fn a_code_of_a_later_version_is_shown_and_judged_by_the_canary() {
    let mut world = World::good();
    world.facts_of(DISK).outcome = Some("NewTrouble".to_owned());
    world.facts_of(DISK).last_good_hop = Some("vault-read".to_owned());
    let expected = ("True", "NewTrouble", Some("granted"), Some("decode"));
    assert_eq!(said(&world.identity(DISK)), expected);
    world.facts_of(DISK).outcome = Some("no reason at all".to_owned());
    assert_eq!(world.identity(DISK).reason, "IdentityBroken");
}

#[test]
fn a_loaded_credential_that_ended_is_broken_whatever_the_canary_still_does_with_its_tokens() {
    let end = stamps(0).2;
    let mut world = World::good();
    world.now = end;
    let identity = world.identity(DISK);
    let expected = ("False", "CredentialExpired", Some("file"), Some("credential"));
    assert_eq!(said(&identity), expected);
    assert_eq!(identity.since, Some(end));
    assert!(identity.message.contains("no newer one came"), "{}", identity.message);

    for code in [OutcomeCode::VaultThrottled, OutcomeCode::VaultForbidden] {
        world.outcome(DISK, code);
        let identity = world.identity(DISK);
        let expected = ("False", code.name(), Some("imds-token"), Some("vault-read"));
        assert_eq!(said(&identity), expected);
        assert!(!identity.message.contains("still serves"), "{}", identity.message);
    }
}

#[test]
fn the_next_step_where_a_credential_ended_is_one_that_mends_it() {
    let (begin, _, end) = stamps(0);
    let renew = "no newer one came; next: renew the secret";
    let certificate = "longer than its certificate does; next: renew the secret in the vault, with";
    let restart = "a newer one is mounted and not loaded; next: restart the pod";
    // What the node says of the file.
    for (not_before, not_after, expected) in [
        (Some(begin), Some(end), renew),
        (Some(begin), None, renew),
        (Some(begin), Some(end + 1.hour()), certificate),
        (Some(begin + 1.hour()), Some(end + 1.hour()), restart),
        (None, Some(end + 1.hour()), restart),
    ] {
        let mut world = World::good();
        world.now = end;
        let object = &mut world.facts_of(DISK).objects[0];
        (object.not_before, object.not_after) = (not_before, not_after);
        let identity = world.identity(DISK);
        assert_eq!((identity.reason.as_str(), identity.since), ("CredentialExpired", Some(end)));
        assert!(identity.message.contains(expected), "{expected}: {}", identity.message);
    }
}

#[test]
fn without_a_canary_the_node_alone_can_say_that_the_credential_ended() {
    let mut world = World::good();
    world.now = stamps(0).2;
    world.pod_of(DISK).canary = Facts::Absent;
    assert_eq!(world.identity(DISK).reason, "CredentialExpired");
}

#[test]
fn what_nobody_proved_is_unknown_and_says_what_is_missing() {
    let mut world = World::good();
    world.pod_of(DISK).canary = Facts::Absent;
    let identity = world.identity(DISK);
    assert_eq!(said(&identity), ("Unknown", "NotProven", Some("file"), None));
    assert_eq!(
        identity.message,
        "pod `azure-disk-csi-driver-controller`: the file is mounted, and no canary runs in it"
    );
    assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
    assert_eq!(identity.not_after, Some(stamps(0).2));

    world.volume_of(DISK).facts = Facts::Absent;
    let identity = world.identity(DISK);
    assert!(identity.message.ends_with("tells no more than the mounted version"));
    assert_eq!((identity.loaded_version.as_deref(), identity.not_after), (Some("v1"), None));

    world.pod_of(DISK).canary = Facts::Unreadable;
    assert!(world.identity(DISK).message.contains("the facts of its canary cannot be read"));
    world.pod_of(DISK).canary = Facts::Told(canary(Component::File));
    assert!(world.identity(DISK).message.contains("its canary proves `file`"));

    world.pod_of(DISK).canary = Facts::Absent;
    world.volumes.retain(|volume| volume.class != DISK.facts().secret_provider_class);
    let expected = ("Unknown", "NotReported", Some("spc"), None);
    assert_eq!(said(&world.identity(DISK)), expected);
}

#[test]
fn an_upstream_driver_takes_nothing_away_from_what_a_canary_proved() {
    let mut world = World::good();
    world.volume_of(DISK).facts = Facts::Absent;
    let identity = world.identity(DISK);
    assert_eq!(said(&identity), ("True", "AsExpected", Some("granted"), None));
    assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
    assert_eq!(identity.not_after, Some(stamps(0).2));
    world.volumes.clear();
    let identity = world.identity(DISK);
    assert_eq!((identity.ready.as_str(), identity.loaded_version), ("True", None));
}

#[test]
fn a_canary_that_is_not_through_proves_nothing_yet() {
    let mut world = World::good();
    for (hop, ready) in
        [(None, "Unknown"), (Some("entra-token"), "Unknown"), (Some("refused"), "True")]
    {
        world.canary_of(DISK).last_good_hop = hop.map(str::to_owned);
        assert_eq!(world.identity(DISK).ready, ready, "{hop:?}");
    }
}

/// Who of all that have come to a token is proven by it.
fn proven_by_a_token(mut world: World) -> Vec<String> {
    let components: Vec<_> = world.cluster.components().map(|(component, _)| component).collect();
    for component in components {
        world.canary_of(component).last_good_hop = Some("entra-token".to_owned());
    }
    let identities = world.status().identities.into_iter();
    identities.filter(|it| it.ready == "True").map(|it| it.component).collect()
}

#[test]
fn a_token_proves_the_identity_of_a_canary_that_is_given_no_call_and_of_no_other() {
    let mut world = World::good();
    assert!(proven_by_a_token(world.clone()).is_empty());
    world.templates = WorkloadTemplates::parse("canary: {calls: {disk: ''}}").unwrap();
    assert_eq!(proven_by_a_token(world), ["disk"]);

    let hsm = (format!("{KMS}/keyVaultType"), json!("ManagedHSM"));
    let mut world = World::of(valid(&changed(&[hsm])));
    assert_eq!(proven_by_a_token(world.clone()), ["kms"]);
    let call = "canary: {calls: {kms: 'GET https://m.managedhsm.azure.net/keys?api-version=7.4'}}";
    world.templates = WorkloadTemplates::parse(call).unwrap();
    assert!(proven_by_a_token(world).is_empty());

    let private = (format!("{KMS}/keyVaultAccess"), json!("Private"));
    let mut world = World::of(valid(&changed(&[private])));
    assert_eq!(proven_by_a_token(world.clone()), ["kms"]);
    world.private_router = Some("172.30.0.100".parse().unwrap());
    assert!(proven_by_a_token(world).is_empty());

    let stack = (format!("{AZURE}/cloud"), json!("AzureStackCloud"));
    let world = World::of(valid(&changed(&[stack])));
    assert_eq!(proven_by_a_token(world).len(), 9);
}

#[test]
fn of_a_cluster_that_cannot_be_used_a_silent_canary_proves_what_it_proved() {
    let hsm = (format!("{KMS}/keyVaultType"), json!("ManagedHSM"));
    let mut world = World::of(valid(&changed(&[hsm])));
    world.canary_of(Component::Kms).last_good_hop = Some("entra-token".to_owned());
    world.previous = Some(world.status());
    let problems = Problems::default();
    let observed = Observed { cluster: ClusterState::Invalid(&problems), ..world.observed() };
    assert!(identities_status(&observed).identities.iter().all(|it| it.ready == "True"));
}

#[test]
fn a_pod_that_is_gone_or_not_ready_counts_for_nothing() {
    let breaks: [fn(&mut ObservedPod); 3] =
        [|pod| pod.is_ready = false, |pod| pod.is_deleting = true, |pod| pod.classes.clear()];
    for change in breaks {
        let mut world = World::good();
        change(world.pod_of(DISK));
        let identity = world.identity(DISK);
        assert_eq!(said(&identity), ("Unknown", "NotReported", Some("spc"), None));
        assert_eq!((identity.loaded_version, identity.not_after), (None, None));
    }
}

#[test]
fn a_pod_that_is_not_ready_is_named_with_what_its_volume_says() {
    let mut world = World::good();
    world.pod_of(DISK).is_ready = false;
    world.pod_of(DISK).canary = Facts::Absent;
    let message = world.identity(DISK).message;
    assert!(message.ends_with("is not ready; its events say why"), "{message}");
    world.outcome(DISK, OutcomeCode::VaultForbidden);
    let message = world.identity(DISK).message;
    assert_eq!(
        message,
        "pod `azure-disk-csi-driver-controller` of `azure-disk-csi-driver-controller` is not ready: VaultForbidden: what came of VaultForbidden"
    );
}

#[test]
fn a_volume_of_an_earlier_pod_of_the_same_name_is_not_its_volume() {
    let mut world = World::good();
    world.volume_of(DISK).pod_uid = Some("another".to_owned());
    assert_eq!(world.identity(DISK).loaded_version, None);
    world.volume_of(DISK).pod_uid = None;
    assert_eq!(world.identity(DISK).loaded_version.as_deref(), Some("v1"));
}

#[test]
fn stamps_of_another_version_are_not_those_of_the_mounted_one() {
    let mut world = World::good();
    world.pod_of(DISK).canary = Facts::Absent;
    world.facts_of(DISK).objects[0].version = "v0".to_owned();
    let identity = world.identity(DISK);
    assert_eq!((identity.loaded_version.as_deref(), identity.not_after), (Some("v1"), None));
    world.volume_of(DISK).objects[0].0 = "secret/other".to_owned();
    assert_eq!(world.identity(DISK).loaded_version, None);
}

#[test]
fn of_two_pods_in_a_rollout_the_worst_speaks_and_the_oldest_credential_shows() {
    let consumer = &DISK.consumers()[0];
    let mut world = World::good();
    world.run(DISK, consumer, "new");
    let class = DISK.facts().secret_provider_class;
    let id = world.volume_of(DISK).objects[0].0.clone();
    *world.volume_in(DISK, "new") = volume("new", class, &id, "v2", stamps(10));
    told(&mut world.pod("new").canary).credential = None;
    let identity = world.identity(DISK);
    assert_eq!((identity.ready.as_str(), identity.loaded_version.as_deref()), ("True", Some("v1")));
    assert_eq!(identity.not_after, Some(stamps(0).2));

    world.pod("new").canary = Facts::Absent;
    assert_eq!(world.identity(DISK).ready, "Unknown");
    world.fail(DISK, Hop::Granted, "AuthorizationFailed");
    assert_eq!(world.identity(DISK).reason, "AuthorizationFailed");
    told(&mut world.volume_in(DISK, "new").facts).outcome = Some("VaultForbidden".to_owned());
    let identity = world.identity(DISK);
    assert_eq!(identity.failed_hop.as_deref(), Some("vault-read"), "the first broken hop");
    assert!(identity.message.starts_with("pod `new`"), "{}", identity.message);

    world.pod_of(DISK).is_deleting = true;
    assert_eq!(world.identity(DISK).loaded_version.as_deref(), Some("v2"));
}

#[test]
fn a_silent_pod_is_waited_for_before_it_makes_an_identity_unknown() {
    let mut world = World::good();
    world.run(DISK, &DISK.consumers()[0], "new");
    world.pod("new").canary = Facts::Absent;
    world.pod("new").started = Some(noon() - 119.seconds());
    assert_eq!(world.identity(DISK).ready, "True");
    let observed = world.observed();
    let next = next_look(&observed, &world.status());
    assert_eq!(next, Some(noon() + 1.second()));
    world.now += 1.second();
    assert_eq!(world.identity(DISK).ready, "Unknown");

    world.pod("new").started = Some(world.now);
    world.fail(DISK, Hop::Granted, "AuthorizationFailed");
    assert_eq!(world.identity(DISK).ready, "False");
}

/// A pod that takes the place of another one, before it said anything.
fn replaced(world: &World) -> World {
    let mut world = world.clone();
    world.run(DISK, &DISK.consumers()[0], "new");
    let (now, old) = (world.now, world.pod_of(DISK));
    (old.is_deleting, old.gone_by) = (true, Some(now + 30.seconds()));
    let new = world.pod("new");
    (new.canary, new.created, new.started) = (Facts::Absent, Some(now), Some(now));
    world
}

#[test]
fn a_rollout_leaves_an_identity_as_it_stands_until_the_new_pod_speaks() {
    let good = World::good().settled();
    let before = bytes(&good.status());
    let mut world = replaced(&good);
    assert_eq!(bytes(&world.status()), before);
    // With the network of the host the old pod goes before the new one is ready.
    world.pod("new").is_ready = false;
    assert_eq!(bytes(&world.status()), before);
    world.pods.retain(|pod| pod.name != "new");
    assert_eq!(bytes(&world.status()), before);
    assert_eq!(next_look(&world.observed(), &world.status()), Some(noon() + 30.seconds()));

    // Only for so long.
    let mut world = replaced(&good).later(2);
    assert_eq!(world.identity(DISK).reason, "NotProven");
    world.pod("new").is_ready = false;
    assert_eq!(world.identity(DISK).ready, "Unknown");

    // Nor beyond what the credential lasts, nor against what somebody tells.
    let mut world = replaced(&good);
    let end = world.now;
    let all = &mut world.previous.as_mut().unwrap().identities;
    all.iter_mut().find(|it| it.component == "disk").unwrap().not_after = Some(end);
    assert_eq!(world.identity(DISK).ready, "Unknown");
    let mut world = replaced(&good);
    world.pod("new").canary = Facts::Told(canary(DISK));
    told(&mut world.pod("new").canary).failure = Some(HopFailure {
        hop: "granted".to_owned(),
        code: "AuthorizationFailed".to_owned(),
        message: "what came back".to_owned(),
        hint: String::new(),
        since: noon(),
    });
    assert_eq!(world.identity(DISK).reason, "AuthorizationFailed");
}

#[test]
fn at_the_end_of_a_cluster_what_was_known_last_stands_and_what_breaks_is_told() {
    let mut world = World::good();
    world.probe(Component::Kms, ProbeFacts::ENCRYPTION, true, "AsExpected");
    let mut world = World { is_ending: true, ..world.settled() };
    world.fail(DISK, Hop::EntraToken, "AADSTS700016");
    assert_eq!(world.identity(DISK).reason, "AADSTS700016");
    let mut world = world.settled();
    let before = bytes(&world.status());
    for pod in &mut world.pods {
        pod.is_deleting = true;
    }
    assert_eq!(bytes(&world.status()), before);
    world.pods.clear();
    world.volumes.clear();
    world.classes = Some(BTreeSet::new());
    assert_eq!(bytes(&world.status()), before);
    assert_eq!(transitions(world.previous.as_ref(), &world.status()), []);
}

#[test]
fn a_version_that_is_mounted_and_not_loaded_is_not_the_one_that_shows() {
    let mut world = World::good().settled();
    let id = world.volume_of(DISK).objects[0].0.clone();
    let (pod, class) = (DISK.consumers()[0].deployment, DISK.facts().secret_provider_class);
    *world.volume_of(DISK) = volume(pod, class, &id, "v2", stamps(10));
    let identity = world.identity(DISK);
    assert_eq!(identity.loaded_version.as_deref(), Some("v1"));
    assert_eq!(identity.not_after, Some(stamps(0).2));
    // Nobody who begins only now knows which version was loaded before.
    world.previous = None;
    assert_eq!(world.identity(DISK).loaded_version, None);

    // A driver that tells no stamps says no more than that there is another version.
    let mut world = World::good().settled();
    world.volume_of(DISK).facts = Facts::Absent;
    world.volume_of(DISK).objects[0].1 = "v2".to_owned();
    assert_eq!(world.identity(DISK).loaded_version.as_deref(), Some("v1"));
    world.load(DISK, 10);
    assert_eq!(world.identity(DISK).loaded_version.as_deref(), Some("v2"));
}

#[test]
fn a_canary_in_a_crash_loop_counts_once_it_has_run_for_a_while() {
    let mut world = World::good();
    let pod = world.pod_of(DISK);
    (pod.restarts, pod.started) = (3, Some(noon() - 1.second()));
    let identity = world.identity(DISK);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("Unknown", "NotReported"));
    world.pod_of(DISK).restarts = 2;
    assert_eq!(world.identity(DISK).ready, "True");
    world.pod_of(DISK).restarts = 30;
    world.now += 2.minutes();
    assert_eq!(world.identity(DISK).ready, "True");
}

#[test]
fn a_class_that_is_gone_breaks_those_who_mount_it_and_is_only_missing_before() {
    let mut world = World::good();
    world.classes.as_mut().unwrap().remove(DISK.facts().secret_provider_class);
    let expected = ("False", "SecretProviderClassNotFound", Some("hostedcluster"), Some("spc"));
    assert_eq!(said(&world.identity(DISK)), expected);
    world.pods.retain(|pod| pod.name != DISK.consumers()[0].deployment);
    let expected = ("Unknown", "SecretProviderClassNotFound", Some("hostedcluster"), Some("spc"));
    assert_eq!(said(&world.identity(DISK)), expected);
}

#[test]
fn classes_that_cannot_be_read_take_nothing_away_from_what_pods_tell() {
    let mut world = World::good();
    world.classes = None;
    assert_eq!(world.identity(DISK).ready, "True");
    world.pods.clear();
    assert_eq!(
        said(&world.identity(DISK)),
        ("Unknown", "NotReported", Some("hostedcluster"), None)
    );
}

#[test]
fn both_consumers_of_kms_have_to_be_well_and_the_second_vouches_for_its_file() {
    let kms = Component::Kms;
    let mut world = World::good();
    assert_eq!(said(&world.identity(kms)), ("True", "AsExpected", Some("granted"), None));

    world.volumes.retain(|it| {
        it.class != kms.facts().secret_provider_class || it.pod != "control-plane-operator"
    });
    let identity = world.identity(kms);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("Unknown", "NotReported"));
    assert!(identity.message.starts_with("pod `control-plane-operator`"), "{}", identity.message);

    let mut world = World::good();
    told(&mut world.volume_in(kms, "control-plane-operator").facts).outcome =
        Some("ObjectDisabled".to_owned());
    assert_eq!(world.identity(kms).reason, "ObjectDisabled");
    assert_eq!(world.identity(Component::ControlPlaneOperator).ready, "True");

    let mut world = World::good();
    world.fail(Component::ControlPlaneOperator, Hop::EntraToken, "AADSTS7000215");
    assert_eq!(world.identity(kms).ready, "True");

    let mut world = World::good();
    world.pod("kube-apiserver").is_ready = false;
    let identity = world.identity(kms);
    assert_eq!(identity.ready, "Unknown");
    assert!(identity.message.contains("`kube-apiserver` is not ready"), "{}", identity.message);
}

#[test]
fn the_client_id_is_that_of_the_cluster_or_else_of_the_loaded_credential() {
    let mut world = World::good();
    let named = world.cluster.identities[&DISK].client_id.unwrap().to_string();
    assert_eq!(world.identity(DISK).client_id, Some(named));
    world.cluster.identities.get_mut(&DISK).unwrap().client_id = None;
    assert_eq!(world.identity(DISK).client_id.as_deref(), Some(LOADED));
    let odd = "not an id, and far too long to be one, whoever wrote it here";
    world.canary_of(DISK).credential.as_mut().unwrap().client_id = odd.to_owned();
    assert_eq!(world.identity(DISK).client_id, None);
}

#[test]
fn times_stay_until_ready_changes() {
    let world = World::good().settled().later(10);
    assert_eq!(world.identity(DISK).since, Some(noon()));
    let mut world = world.settled();
    world.outcome(DISK, OutcomeCode::VaultUnavailable);
    assert_eq!(world.identity(DISK).since, Some(noon()), "it still works");
    world.pod_of(DISK).canary = Facts::Absent;
    assert_eq!(world.identity(DISK).since, Some(noon() + 10.minutes()));
    world.fail_later(DISK);
    assert_eq!(world.identity(DISK).since, Some(noon() + 10.minutes()), "not in the future");
}

impl World {
    fn fail_later(&mut self, component: Component) {
        self.pod_of(component).canary = Facts::Told(canary(component));
        self.fail(component, Hop::Granted, "AuthorizationFailed");
        let since = self.now + 1.hour();
        self.canary_of(component).failure.as_mut().unwrap().since = since;
    }
}

#[test]
fn what_others_wrote_is_shown_in_one_short_line() {
    let mut world = World::good();
    world.fail(DISK, Hop::Granted, "two words");
    let failure = world.canary_of(DISK).failure.as_mut().unwrap();
    failure.message = format!("line\n\u{1b}[31mline {}", "x".repeat(9_000));
    failure.hop = "no hop".to_owned();
    let identity = world.identity(DISK);
    assert_eq!(identity.reason, "IdentityBroken");
    assert_eq!(identity.failed_hop.as_deref(), Some("granted"), "the hop after the last good one");
    assert_eq!(identity.message.len(), 1_000);
    assert!(identity.message.ends_with("x…"), "{}", identity.message);
    assert!(!identity.message.chars().any(char::is_control));
}

#[test]
fn of_a_cluster_that_cannot_be_used_what_runs_is_told_on() {
    let world = World::good().settled();
    let mut problems = Problems::default();
    problems.error("spec.infraID", "infraID is required");
    let mut observed = world.observed();
    observed.cluster = ClusterState::Invalid(&problems);
    let status = identities_status(&observed);
    assert_eq!(status.identities.len(), 9);
    assert!(status.identities.iter().all(|it| it.ready == "True"));
    let all = &status.conditions[0];
    assert_eq!((all.status.as_str(), all.reason.as_str()), ("False", "InvalidHostedCluster"));
    assert!(all.message.contains("spec.infraID: infraID is required"), "{}", all.message);

    observed.previous = None;
    observed.classes = Classes::Unknown;
    assert_eq!(identities_status(&observed).identities, []);
}
