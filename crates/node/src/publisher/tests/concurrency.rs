use super::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn the_same_volume_ordered_many_times_at_once_is_filled_once() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    let all = (0..20).map(|_| {
        let (publisher, order) = (publisher.clone(), order(&target));
        tokio::spawn(async move { publisher.publish(order).await })
    });
    for one in futures::future::join_all(all).await {
        one.unwrap().unwrap();
    }
    assert_eq!((node.provider.times_asked(), node.layers(&target)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn twenty_volumes_are_filled_at_the_same_time() {
    let node = Node::new();
    let publisher = node.start();
    node.provider.shut().await;
    let targets: Vec<_> = (0..20).map(|n| node.prepared(&format!("v{n}"))).collect();
    let all = targets.iter().map(|target| {
        let (publisher, order) = (publisher.clone(), order(target));
        tokio::spawn(async move { publisher.publish(order).await })
    });
    let all: Vec<_> = all.collect();
    while node.provider.times_asked() < 20 {
        tokio::task::yield_now().await;
    }
    node.provider.open();
    for one in futures::future::join_all(all).await {
        one.unwrap().unwrap();
    }
    assert_eq!(publisher.states().len(), 20);
    assert!(targets.iter().all(|target| read(target, "cert") == "one"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_call_that_is_given_up_is_finished_all_the_same() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    node.provider.shut().await;
    {
        let call = publisher.publish(order(&target));
        tokio::pin!(call);
        while node.provider.times_asked() == 0 {
            assert!(futures::poll!(&mut call).is_pending());
            tokio::task::yield_now().await;
        }
    }
    node.provider.open();
    // The next call waits for the first one, and finds its work.
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!((node.provider.times_asked(), node.layers(&target)), (1, 1));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn an_unpublish_does_not_wait_for_the_provider_of_a_pod_that_is_gone() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    let first = node.publishing(&publisher, &target).await;
    // The gate stays shut.
    publisher.unpublish("csi-1", &target).await.unwrap();
    let failure = first.await.unwrap().unwrap_err();
    assert_eq!(failure.grpc, Code::Aborted);
    assert_eq!(node.listener.kinds(), [], "nothing is wrong");
    assert!(!target.exists());
    assert_eq!((node.layers(&target), publisher.states().len()), (0, 0));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_provider_that_never_answers_is_named_before_the_kubelet_gives_up() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    let call = node.publishing(&publisher, &target).await;
    while node.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    node.clock.advance(Duration::from_secs(101));
    let failure = call.await.unwrap().unwrap_err();
    let code = OutcomeCode::ProviderUnavailable;
    assert_eq!((failure.code, failure.grpc), (code, Code::Unavailable));
    assert!(failure.message.contains("100 s"), "{failure}");
    assert_eq!(node.layers(&target), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn publishes_and_unpublishes_that_race_end_in_one_of_both() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    for round in 0..30 {
        let mut calls = Vec::new();
        for turn in 0..6 {
            let (publisher, order) = (publisher.clone(), order(&target));
            calls.push(tokio::spawn(async move {
                if turn % 3 == round % 3 {
                    publisher.unpublish("csi-1", &order.target).await
                } else {
                    publisher.publish(order).await
                }
            }));
        }
        for call in calls {
            if let Err(failure) = call.await.unwrap() {
                assert_eq!(failure.grpc, Code::Aborted, "{failure}");
            }
        }
        let layers = node.layers(&target);
        assert_eq!(publisher.states().len(), layers, "round {round}");
        match layers {
            0 => assert!(!target.join("cert").exists()),
            1 => assert_eq!(read(&target, "cert"), "one"),
            _ => panic!("{layers} mounts are stacked"),
        }
    }
}
