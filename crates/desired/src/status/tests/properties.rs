//! Equal inputs give equal bytes.

use proptest::prelude::*;

use super::*;

/// Generates a change of one component.
fn any_change() -> impl Strategy<Value = (Component, u8, usize)> {
    (prop::sample::select(Component::ALL.to_vec()), 0_u8..13, 0..OutcomeCode::ALL.len())
}

fn apply_change(world: &mut StatusFixture, (component, what, code): (Component, u8, usize)) {
    let consumer = &component.consumers()[0];
    match what {
        0 => world.report_outcome(component, OutcomeCode::ALL[code]),
        1 => world.pod_of_component(component).is_ready = false,
        2 => world.pod_of_component(component).canary_report = StatusReportAnnotation::Absent,
        3 => world.volume_of_component(component).report = StatusReportAnnotation::Unreadable,
        4 => world.add_ready_pod(component, consumer, &format!("{}-{code}", consumer.deployment)),
        5 => world.pod_of_component(component).started_at = Some(world.now),
        6 => world.pod_of_component(component).is_deleting = true,
        7 => {
            let class = component.definition().secret_provider_class;
            world.classes.as_mut().unwrap().remove(class);
        }
        8 => world.volume_of_component(component).objects[0].1 = format!("v{code}"),
        9 => {
            let now = world.now;
            let pod = world.pod_of_component(component);
            (pod.is_ready, pod.created_at) = (false, Some(now));
        }
        10 => {
            let gone_by = world.now + 30.seconds();
            let pod = world.pod_of_component(component);
            (pod.is_deleting, pod.deletion_deadline) = (true, Some(gone_by));
        }
        11 => world.is_deleting = true,
        _ => {
            let hop = Hop::CERTIFICATE_PATH[7 + code % 3];
            if world.pod_of_component(component).canary_report.parsed().is_some() {
                world.report_canary_failure(component, hop, "AADSTS700027");
            }
        }
    }
}

fn fixture_after_changes(happenings: &[(Component, u8, usize)]) -> StatusFixture {
    let mut world = StatusFixture::all_ready();
    for happening in happenings {
        // An unreadable report cannot get worse.
        let readable = world.volume_of_component(happening.0).report.parsed().is_some();
        if readable || happening.1 != 0 {
            apply_change(&mut world, *happening);
        }
    }
    world
}

proptest! {
    #[test]
    fn unchanged_inputs_give_an_unchanged_status(
        happenings in prop::collection::vec(any_change(), 0..8),
        minutes in prop_oneof![0_i64..100, 0_i64..200_000],
    ) {
        let world = fixture_after_changes(&happenings).with_current_status_as_previous();
        let first = status_json(world.previous_status.as_ref().unwrap());
        prop_assert_eq!(&status_json(&world.status()), &first);
        prop_assert_eq!(status_transitions(world.previous_status.as_ref(), &world.status()), []);
        // Time alone changes nothing before `next_status_change_at`.
        let next = next_status_change_at(&world.inputs(), &world.status());
        let later = world.advanced_by_minutes(minutes);
        if next.is_none_or(|next| later.now < next) {
            prop_assert_eq!(&status_json(&later.status()), &first);
        }
    }

    #[test]
    fn the_order_of_pods_and_volumes_does_not_matter(
        (happenings, order) in (prop::collection::vec(any_change(), 0..8), any::<u64>()),
    ) {
        let world = fixture_after_changes(&happenings);
        let mut other = world.clone();
        let shuffle = |name: &str| {
            name.bytes().fold(order, |sum, byte| sum.rotate_left(7).wrapping_mul(31) ^ u64::from(byte))
        };
        other.pods.sort_by_key(|pod| shuffle(&pod.name));
        other.volumes.sort_by_key(|volume| shuffle(&format!("{}{}", volume.pod_name, volume.class_name)));
        prop_assert!(status_json(&world.status()) == status_json(&other.status()));
    }

    #[test]
    fn status_survives_a_round_trip(
        happenings in prop::collection::vec(any_change(), 0..8),
    ) {
        let mut world = fixture_after_changes(&happenings);
        world.now += 123.milliseconds();
        let status = world.status();
        let read: HostedClusterIdentitiesStatus = serde_json::from_str(&status_json(&status)).unwrap();
        prop_assert_eq!(read, status);
    }

    #[test]
    fn identity_is_ready_only_if_proven(
        happenings in prop::collection::vec(any_change(), 0..8),
    ) {
        let world = fixture_after_changes(&happenings);
        for identity in world.status().identities {
            let proven = world.pods.iter().filter(|pod| pod.is_ready && !pod.is_deleting).any(|pod| {
                pod.canary_report.parsed().is_some_and(|report| report.component == identity.component && report.failure.is_none())
            });
            prop_assert!(identity.ready != "True" || proven, "{identity:?}");
            prop_assert!(identity.ready == "True" || !identity.message.is_empty(), "{identity:?}");
        }
    }
}

/// Generates texts that a user who may write pods can put into annotations.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9-]{0,40}",
        "\\PC{0,200}",
        Just("x".repeat(3_000)),
        Just("ü\n".repeat(2_000)),
        Just(LOADED_CLIENT_ID.to_owned()),
    ]
}

/// Returns the fields that exceed the limits of the CRD.
fn schema_violations(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let most = |name: &str| schema[name].as_u64().map(|most| usize::try_from(most).unwrap());
    let of = |key: &str, inner: &Value, value: &Value| {
        schema_violations(inner, value, &format!("{path}.{key}"))
    };
    match value {
        Value::String(text) => {
            let is_long = most("maxLength").is_some_and(|most| text.chars().count() > most);
            let allowed = schema["enum"].as_array();
            let is_odd = allowed.is_some_and(|allowed| !allowed.contains(value));
            if is_long || is_odd { vec![format!("{path}: {text}")] } else { Vec::new() }
        }
        Value::Array(items) => {
            let is_long = most("maxItems").is_some_and(|most| items.len() > most);
            let inner = items.iter().flat_map(|item| of("*", &schema["items"], item));
            is_long.then(|| path.to_owned()).into_iter().chain(inner).collect()
        }
        Value::Object(map) => {
            map.iter().flat_map(|(key, item)| of(key, &schema["properties"][key], item)).collect()
        }
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn any_report_gives_a_schema_valid_status(
        texts in prop::collection::vec(any_text(), 10),
        component in prop::sample::select(Component::ALL.to_vec()),
        fails in any::<bool>(),
    ) {
        let mut texts = texts.into_iter();
        let mut next = || texts.next().unwrap_or_default();
        let mut world = StatusFixture::all_ready();
        world.cluster.identities.get_mut(&component).unwrap().client_id = None;
        let object = &mut world.volume_of_component(component).objects[0];
        object.1 = next();
        let facts = world.volume_report_of(component);
        (facts.message, facts.outcome) = (Some(next()), Some(next()));
        let canary = world.canary_report_of(component);
        canary.last_good_hop = fails.then(&mut next);
        canary.credential.as_mut().unwrap().client_id = next();
        canary.failure = fails.then(|| HopFailure {
            hop: next(),
            code: next(),
            message: next(),
            hint: next(),
            since: noon(),
        });
        let name = CanaryProbeReport::ENCRYPTION_PROBE;
        world.report_probe(Component::Kms, name, false, &next());
        let definitions = lanyard_api::crd_definitions::crd_manifests();
        let definition = definitions.iter().find(|it| it.plural() == "hostedclusteridentities");
        let version = &definition.unwrap().value["spec"]["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
        prop_assert!(schema["properties"]["identities"]["maxItems"].is_number());
        let status = serde_json::to_value(world.status()).unwrap();
        prop_assert_eq!(schema_violations(schema, &status, "status"), Vec::<String>::new());
    }
}
