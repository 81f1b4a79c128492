//! Equal facts give equal bytes.

use proptest::prelude::*;

use super::*;

/// Something that happens to one component.
fn happening() -> impl Strategy<Value = (Component, u8, usize)> {
    (prop::sample::select(Component::ALL.to_vec()), 0_u8..13, 0..OutcomeCode::ALL.len())
}

fn happen(world: &mut World, (component, what, code): (Component, u8, usize)) {
    let consumer = &component.consumers()[0];
    match what {
        0 => world.outcome(component, OutcomeCode::ALL[code]),
        1 => world.pod_of(component).is_ready = false,
        2 => world.pod_of(component).canary = Facts::Absent,
        3 => world.volume_of(component).facts = Facts::Unreadable,
        4 => world.run(component, consumer, &format!("{}-{code}", consumer.deployment)),
        5 => world.pod_of(component).started = Some(world.now),
        6 => world.pod_of(component).is_deleting = true,
        7 => {
            let class = component.facts().secret_provider_class;
            world.classes.as_mut().unwrap().remove(class);
        }
        8 => world.volume_of(component).objects[0].1 = format!("v{code}"),
        9 => {
            let now = world.now;
            let pod = world.pod_of(component);
            (pod.is_ready, pod.created) = (false, Some(now));
        }
        10 => {
            let gone_by = world.now + 30.seconds();
            let pod = world.pod_of(component);
            (pod.is_deleting, pod.gone_by) = (true, Some(gone_by));
        }
        11 => world.is_ending = true,
        _ => {
            let hop = Hop::ALL[7 + code % 3];
            if world.pod_of(component).canary.told().is_some() {
                world.fail(component, hop, "AADSTS700027");
            }
        }
    }
}

fn applied(happenings: &[(Component, u8, usize)]) -> World {
    let mut world = World::good();
    for happening in happenings {
        // Facts that are gone cannot get worse.
        let readable = world.volume_of(happening.0).facts.told().is_some();
        if readable || happening.1 != 0 {
            happen(&mut world, *happening);
        }
    }
    world
}

proptest! {
    #[test]
    fn a_settled_status_is_the_same_until_something_happens(
        happenings in prop::collection::vec(happening(), 0..8),
        minutes in prop_oneof![0_i64..100, 0_i64..200_000],
    ) {
        let world = applied(&happenings).settled();
        let first = bytes(world.previous.as_ref().unwrap());
        prop_assert_eq!(&bytes(&world.status()), &first);
        prop_assert_eq!(transitions(world.previous.as_ref(), &world.status()), []);
        // Until the next look that was asked for, time changes nothing.
        let next = next_look(&world.observed(), &world.status());
        let later = world.later(minutes);
        if next.is_none_or(|next| later.now < next) {
            prop_assert_eq!(&bytes(&later.status()), &first);
        }
    }

    #[test]
    fn the_order_of_pods_and_volumes_does_not_matter(
        (happenings, order) in (prop::collection::vec(happening(), 0..8), any::<u64>()),
    ) {
        let world = applied(&happenings);
        let mut other = world.clone();
        let shuffle = |name: &str| {
            name.bytes().fold(order, |sum, byte| sum.rotate_left(7).wrapping_mul(31) ^ u64::from(byte))
        };
        other.pods.sort_by_key(|pod| shuffle(&pod.name));
        other.volumes.sort_by_key(|volume| shuffle(&format!("{}{}", volume.pod, volume.class)));
        prop_assert!(bytes(&world.status()) == bytes(&other.status()));
    }

    #[test]
    fn what_is_read_back_from_the_api_is_what_was_written(
        happenings in prop::collection::vec(happening(), 0..8),
    ) {
        let mut world = applied(&happenings);
        world.now += 123.milliseconds();
        let status = world.status();
        let read: IdentitiesStatus = serde_json::from_str(&bytes(&status)).unwrap();
        prop_assert_eq!(read, status);
    }

    #[test]
    fn an_identity_is_ready_only_if_somebody_proved_it(
        happenings in prop::collection::vec(happening(), 0..8),
    ) {
        let world = applied(&happenings);
        for identity in world.status().identities {
            let proven = world.pods.iter().filter(|pod| pod.is_ready && !pod.is_deleting).any(|pod| {
                pod.canary.told().is_some_and(|told| told.component == identity.component && told.failure.is_none())
            });
            prop_assert!(identity.ready != "True" || proven, "{identity:?}");
            prop_assert!(identity.ready == "True" || !identity.message.is_empty(), "{identity:?}");
        }
    }
}
