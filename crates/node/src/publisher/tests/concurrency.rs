use super::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn concurrent_publishes_of_one_volume_fetch_once() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    let all = (0..20).map(|_| {
        let (publisher, order) = (publisher.clone(), publish_request(&target));
        tokio::spawn(async move { publisher.publish(order).await })
    });
    for one in futures::future::join_all(all).await {
        one.unwrap().unwrap();
    }
    assert_eq!((node.provider.request_count(), node.mount_layers(&target)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn twenty_volumes_are_filled_at_the_same_time() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    node.provider.close_gate().await;
    let targets: Vec<_> = (0..20).map(|n| node.prepare_target(&format!("v{n}"))).collect();
    let all = targets.iter().map(|target| {
        let (publisher, order) = (publisher.clone(), publish_request(target));
        tokio::spawn(async move { publisher.publish(order).await })
    });
    let all: Vec<_> = all.collect();
    while node.provider.request_count() < 20 {
        tokio::task::yield_now().await;
    }
    node.provider.open_gate();
    for one in futures::future::join_all(all).await {
        one.unwrap().unwrap();
    }
    assert_eq!(publisher.states().len(), 20);
    assert!(targets.iter().all(|target| read_file(target, "cert") == "one"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn publish_completes_after_its_caller_is_dropped() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    node.provider.close_gate().await;
    {
        let call = publisher.publish(publish_request(&target));
        tokio::pin!(call);
        while node.provider.request_count() == 0 {
            assert!(futures::poll!(&mut call).is_pending());
            tokio::task::yield_now().await;
        }
    }
    node.provider.open_gate();
    // The next call waits for the first one, and finds its work.
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!((node.provider.request_count(), node.mount_layers(&target)), (1, 1));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_does_not_wait_for_a_running_fetch() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    let first = node.start_blocked_publish(&publisher, &target).await;
    // The gate stays shut.
    publisher.unpublish("csi-1", &target).await.unwrap();
    let failure = first.await.unwrap().unwrap_err();
    assert_eq!(failure.grpc, Code::Aborted);
    assert_eq!(node.reporter.event_kinds(), [], "no failure is reported");
    assert!(!target.exists());
    assert_eq!((node.mount_layers(&target), publisher.states().len()), (0, 0));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn provider_timeout_is_reported_before_the_kubelet_deadline() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    let call = node.start_blocked_publish(&publisher, &target).await;
    while node.clock.sleeper_count() == 0 {
        tokio::task::yield_now().await;
    }
    node.clock.advance(Duration::from_secs(101));
    let failure = call.await.unwrap().unwrap_err();
    let code = OutcomeCode::ProviderUnavailable;
    assert_eq!((failure.code, failure.grpc), (code, Code::Unavailable));
    assert!(failure.message.contains("100 s"), "{failure}");
    assert_eq!(node.mount_layers(&target), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn racing_publish_and_unpublish_leave_a_whole_volume_or_none() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    for round in 0..30 {
        let mut calls = Vec::new();
        for slot in 0..6 {
            let (publisher, order) = (publisher.clone(), publish_request(&target));
            calls.push(tokio::spawn(async move {
                if slot % 3 == round % 3 {
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
        let layers = node.mount_layers(&target);
        assert_eq!(publisher.states().len(), layers, "round {round}");
        match layers {
            0 => assert!(!target.join("cert").exists()),
            1 => assert_eq!(read_file(&target, "cert"), "one"),
            _ => panic!("{layers} mounts are stacked"),
        }
    }
}
