//! Reports while Azure Resource Manager or Entra throttles.

use super::*;

#[test]
fn arm_throttling_keeps_identity_proven_with_few_calls() {
    run_test(async {
        for (retry_after, most) in [(None, 14), (Some(120), 15), (Some(7), 16), (Some(900), 5)] {
            let running = CanaryRunFixture::start_proven(|_| ()).await;
            running
                .fixture
                .azure
                .set_response(FakeAzureServices::ARM, FakeAzureResponse::throttled(retry_after));
            let before = running.arm_call_count();
            running.advance_minutes(4).await;
            // A Retry-After of 15 minutes exceeds the threshold, so it is reported immediately.
            let writes = 1 + usize::from(retry_after == Some(900));
            assert_eq!(running.sink.write_count(), writes, "at {retry_after:?}");
            running.advance_minutes(56).await;
            let calls = running.arm_call_count() - before;
            assert!((3..=most).contains(&calls), "{calls} calls with Retry-After {retry_after:?}");
            // Throttling is reported in addition to the status, which does not change.
            assert_eq!(running.sink.failure_codes(), ["good", "good"]);
            let facts = running.sink.last_facts();
            let throttled = facts.throttled.unwrap();
            assert_eq!((&*throttled.hop, &*throttled.code), ("granted", "TooManyRequests"));
            assert_eq!((facts.last_good_hop.as_deref(), facts.failure), (Some("granted"), None));
            assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
            assert_eq!(
                running.fixture.metric(r#"lanyard_canary_hop_good{hop="granted"}"#),
                Some(1.0)
            );
            running.fixture.azure.clear_response(FakeAzureServices::ARM);
            running.advance_minutes(if retry_after == Some(900) { 17 } else { 7 }).await;
            assert_eq!(running.sink.failure_codes(), ["good", "good", "good"]);
            assert_eq!(running.sink.last_facts().throttled, None);
        }
    });
}

#[test]
fn entra_throttling_keeps_token_with_few_requests() {
    run_test(async {
        for (retry_after, most) in [(None, 13), (Some(120), 14), (Some(7), 15)] {
            let running = CanaryRunFixture::start_proven(|_| ()).await;
            // The cached token is valid for an hour; the next one is requested earlier.
            running.advance_minutes(9).await;
            running
                .fixture
                .azure
                .set_response(FakeAzureServices::ENTRA, FakeAzureResponse::throttled(retry_after));
            let (before, calls) = (running.token_request_count(), running.arm_call_count());
            running.advance_minutes(45).await;
            let tokens = running.token_request_count() - before;
            assert!((3..=most).contains(&tokens), "{tokens} requests at {retry_after:?}");
            assert!(running.arm_call_count() - calls >= 40, "the cached token keeps working");
            assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
            let (codes, facts) = (running.sink.failure_codes(), running.sink.last_facts());
            assert!(codes.iter().all(|code| code == "good"), "{codes:?}");
            assert_eq!(facts.last_good_hop.as_deref(), Some("granted"));
            let throttled = facts.throttled.unwrap();
            assert_eq!((&*throttled.hop, &*throttled.code), ("entra-token", "Throttled"));
            running.fixture.azure.clear_response(FakeAzureServices::ENTRA);
            running.advance_minutes(8).await;
            let healed = running.sink.last_facts();
            assert_eq!((healed.failure, healed.throttled), (None, None));
        }
    });
}

#[test]
fn entra_throttling_past_token_expiry_is_a_failure() {
    run_test(async {
        // With the longer pause, the next request comes ten minutes after the cached token expired.
        for (retry_after, minutes, rest) in [(7, 100, 8), (3_600, 60, 64)] {
            let running = CanaryRunFixture::start_proven(|_| ()).await;
            running.advance_minutes(9).await;
            running.fixture.azure.set_response(
                FakeAzureServices::ENTRA,
                FakeAzureResponse::throttled(Some(retry_after)),
            );
            running.advance_minutes(minutes).await;
            assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(0.0));
            let facts = running.sink.last_facts();
            let failure = facts.failure.unwrap();
            assert_eq!((&*failure.hop, &*failure.code), ("entra-token", "Throttled"));
            assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
            running.fixture.azure.clear_response(FakeAzureServices::ENTRA);
            running.advance_minutes(rest).await;
            let healed = running.sink.last_facts();
            assert_eq!((healed.last_good_hop.as_deref(), healed.failure), (Some("granted"), None));
            assert_eq!(healed.throttled, None);
        }
    });
}

#[test]
fn new_credential_is_unproven_until_entra_accepts_it() {
    run_test(async {
        let waits = [None, Some(7), Some(900)];
        for (retry_after, is_paused) in
            waits.into_iter().flat_map(|wait| [(wait, false), (wait, true)])
        {
            let running = CanaryRunFixture::start_proven(|_| ()).await;
            running
                .fixture
                .azure
                .set_response(FakeAzureServices::ENTRA, FakeAzureResponse::throttled(retry_after));
            // Either the first request with the new credential is throttled, or none is sent.
            let tokens = running.token_request_count();
            if is_paused {
                running.fixture.advance_until(|| running.token_request_count() > tokens).await;
            }
            let (before, calls) = (running.sink.last_facts().credential, running.arm_call_count());
            running.fixture.write_credential(5);
            let sink = running.sink.clone();
            running.fixture.advance_until(|| sink.last_facts().credential != before).await;
            running.advance_minutes(20).await;
            for facts in sink.0.lock().iter().filter(|facts| facts.credential != before) {
                let hop = facts.last_good_hop.as_deref();
                assert_eq!((hop, &facts.failure), (Some("credential"), &None), "{retry_after:?}");
                let throttled = facts.throttled.as_ref().unwrap();
                assert_eq!((&*throttled.hop, &*throttled.code), ("entra-token", "Throttled"));
            }
            // The previous credential's token keeps working, but proves nothing about the new one.
            let metric = |line| running.fixture.metric(line);
            assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
            assert_eq!(metric(r#"lanyard_canary_hop_good{hop="entra-token"}"#), None);
            assert!(running.arm_call_count() >= calls + 15, "calls continue");
            running.fixture.azure.clear_response(FakeAzureServices::ENTRA);
            running.advance_minutes(18).await;
            let healed = sink.last_facts();
            assert_eq!((healed.last_good_hop.as_deref(), healed.failure), (Some("granted"), None));
            assert_eq!(healed.throttled, None);
            assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        }
    });
}

#[test]
fn credential_refused_after_throttling_was_never_proven() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running
            .fixture
            .azure
            .set_response(FakeAzureServices::ENTRA, FakeAzureResponse::throttled(Some(7)));
        let before = running.sink.last_facts().credential;
        running.fixture.write_credential(5);
        let sink = running.sink.clone();
        running.fixture.advance_until(|| sink.last_facts().credential != before).await;
        running.advance_minutes(10).await;
        running.fixture.azure.set_response(
            FakeAzureServices::ENTRA,
            FakeAzureResponse::entra_error("invalid_client", 700_027),
        );
        running.advance_minutes(8).await;
        assert_eq!(sink.last_facts().failure.unwrap().code, "AADSTS700027");
        let facts = sink.0.lock();
        let mut renewed = facts.iter().filter(|facts| facts.credential != before);
        assert!(renewed.all(|facts| facts.last_good_hop.as_deref() == Some("credential")));
    });
}

#[test]
fn transient_error_on_first_try_proves_no_credential() {
    run_test(async {
        let busy = || FakeAzureResponse::Reply(503, Vec::new(), json!({}));
        let cooled =
            || FakeAzureResponse::Reply(503, vec![("retry-after", "30".to_owned())], json!({}));
        let firsts = [busy(), cooled(), FakeAzureResponse::Broken, FakeAzureResponse::NoResponse];
        for (first, is_restarted) in
            firsts.into_iter().flat_map(|it| [(it.clone(), false), (it, true)])
        {
            let mut running = CanaryRunFixture::start_proven(|_| ()).await;
            let sink = running.sink.clone();
            let before = sink.last_facts();
            running.fixture.azure.set_response(FakeAzureServices::ENTRA, first.clone());
            let tokens = running.token_request_count();
            running.fixture.write_credential(5);
            running.fixture.advance_until(|| running.token_request_count() > tokens).await;
            running.fixture.advance(Duration::from_secs(20)).await;
            assert_eq!(
                sink.last_facts(),
                before,
                "the report does not change during a transient error"
            );
            if matches!(first, FakeAzureResponse::NoResponse) {
                // The time limit of a token request.
                running.advance_minutes(1).await;
            }
            if is_restarted {
                running.restart(running.fixture.settings());
                running.fixture.run_until_idle().await;
            }
            running
                .fixture
                .azure
                .set_response(FakeAzureServices::ENTRA, FakeAzureResponse::throttled(Some(7)));
            running.advance_minutes(20).await;
            let is_new = |facts: &CanaryStatusReport| facts.credential != before.credential;
            let last = sink.last_facts();
            assert!(is_new(&last), "the new credential is reported: {first:?}");
            running.fixture.azure.set_response(
                FakeAzureServices::ENTRA,
                FakeAzureResponse::entra_error("invalid_client", 700_027),
            );
            running.advance_minutes(8).await;
            assert_eq!(sink.last_facts().failure.unwrap().code, "AADSTS700027");
            for facts in sink.0.lock().iter().filter(|facts| is_new(facts)) {
                assert_eq!(facts.last_good_hop.as_deref(), Some("credential"), "{first:?}");
            }
        }
    });
}
