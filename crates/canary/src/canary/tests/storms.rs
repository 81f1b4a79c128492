//! What is told while Azure Resource Manager or Entra throttles.

use super::*;

#[test]
fn an_hour_of_throttling_costs_few_calls_and_takes_nothing_back() {
    run(async {
        for (retry_after, most) in [(None, 14), (Some(120), 15), (Some(7), 16), (Some(900), 5)] {
            let running = Running::proven(|_| ()).await;
            running.bench.azure.answers(Azure::ARM, Answer::throttled(retry_after));
            let before = running.calls();
            running.pass(4).await;
            // What is to last is told at once: nobody asks again for a quarter of an hour.
            let told = 1 + usize::from(retry_after == Some(900));
            assert_eq!(running.kept.count(), told, "at {retry_after:?}");
            running.pass(56).await;
            let calls = running.calls() - before;
            assert!((3..=most).contains(&calls), "{calls} calls with Retry-After {retry_after:?}");
            // The identity is none the worse for it: it is told beside what is known.
            assert_eq!(running.kept.codes(), ["good", "good"]);
            let facts = running.kept.last();
            let throttled = facts.throttled.unwrap();
            assert_eq!((&*throttled.hop, &*throttled.code), ("granted", "TooManyRequests"));
            assert_eq!((facts.last_good_hop.as_deref(), facts.failure), (Some("granted"), None));
            assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
            assert_eq!(
                running.bench.metric(r#"lanyard_canary_hop_good{hop="granted"}"#),
                Some(1.0)
            );
            running.bench.azure.heals(Azure::ARM);
            running.pass(if retry_after == Some(900) { 17 } else { 7 }).await;
            assert_eq!(running.kept.codes(), ["good", "good", "good"]);
            assert_eq!(running.kept.last().throttled, None);
        }
    });
}

#[test]
fn an_hour_of_throttling_by_entra_costs_few_requests_and_the_token_serves_on() {
    run(async {
        for (retry_after, most) in [(None, 13), (Some(120), 14), (Some(7), 15)] {
            let running = Running::proven(|_| ()).await;
            // The held token lives for an hour; it is asked anew before that ends.
            running.pass(9).await;
            running.bench.azure.answers(Azure::ENTRA, Answer::throttled(retry_after));
            let (before, calls) = (running.tokens(), running.calls());
            running.pass(45).await;
            let tokens = running.tokens() - before;
            assert!((3..=most).contains(&tokens), "{tokens} requests at {retry_after:?}");
            assert!(running.calls() - calls >= 40, "the held token serves on");
            assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
            let (codes, facts) = (running.kept.codes(), running.kept.last());
            assert!(codes.iter().all(|code| code == "good"), "{codes:?}");
            assert_eq!(facts.last_good_hop.as_deref(), Some("granted"));
            let throttled = facts.throttled.unwrap();
            assert_eq!((&*throttled.hop, &*throttled.code), ("entra-token", "Throttled"));
            running.bench.azure.heals(Azure::ENTRA);
            running.pass(8).await;
            let healed = running.kept.last();
            assert_eq!((healed.failure, healed.throttled), (None, None));
        }
    });
}

#[test]
fn an_entra_that_throttles_longer_than_the_token_lasts_is_told_as_a_failure() {
    run(async {
        // The longer one is asked for the next token ten minutes after the held one ended.
        for (retry_after, minutes, rest) in [(7, 100, 8), (3_600, 60, 64)] {
            let running = Running::proven(|_| ()).await;
            running.pass(9).await;
            running.bench.azure.answers(Azure::ENTRA, Answer::throttled(Some(retry_after)));
            running.pass(minutes).await;
            assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
            let facts = running.kept.last();
            let failure = facts.failure.unwrap();
            assert_eq!((&*failure.hop, &*failure.code), ("entra-token", "Throttled"));
            assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
            running.bench.azure.heals(Azure::ENTRA);
            running.pass(rest).await;
            let healed = running.kept.last();
            assert_eq!((healed.last_good_hop.as_deref(), healed.failure), (Some("granted"), None));
            assert_eq!(healed.throttled, None);
        }
    });
}

#[test]
fn a_credential_that_comes_while_entra_throttles_is_not_proven_before_entra_takes_it() {
    run(async {
        let waits = [None, Some(7), Some(900)];
        for (retry_after, is_left_alone) in
            waits.into_iter().flat_map(|wait| [(wait, false), (wait, true)])
        {
            let running = Running::proven(|_| ()).await;
            running.bench.azure.answers(Azure::ENTRA, Answer::throttled(retry_after));
            // Either its first try is throttled, or it is left without one.
            let tokens = running.tokens();
            if is_left_alone {
                running.bench.until(|| running.tokens() > tokens).await;
            }
            let (before, calls) = (running.kept.last().credential, running.calls());
            running.bench.write(5);
            let told = running.kept.clone();
            running.bench.until(|| told.last().credential != before).await;
            running.pass(20).await;
            for facts in told.0.lock().iter().filter(|facts| facts.credential != before) {
                let hop = facts.last_good_hop.as_deref();
                assert_eq!((hop, &facts.failure), (Some("credential"), &None), "{retry_after:?}");
                let throttled = facts.throttled.as_ref().unwrap();
                assert_eq!((&*throttled.hop, &*throttled.code), ("entra-token", "Throttled"));
            }
            // The token of the one before serves on, and vouches for nothing.
            let metric = |line| running.bench.metric(line);
            assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
            assert_eq!(metric(r#"lanyard_canary_hop_good{hop="entra-token"}"#), None);
            assert!(running.calls() >= calls + 15, "calls go on");
            running.bench.azure.heals(Azure::ENTRA);
            running.pass(18).await;
            let healed = told.last();
            assert_eq!((healed.last_good_hop.as_deref(), healed.failure), (Some("granted"), None));
            assert_eq!(healed.throttled, None);
            assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        }
    });
}

#[test]
fn a_credential_that_entra_refuses_after_a_storm_is_told_then_and_was_never_proven() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.azure.answers(Azure::ENTRA, Answer::throttled(Some(7)));
        let before = running.kept.last().credential;
        running.bench.write(5);
        let told = running.kept.clone();
        running.bench.until(|| told.last().credential != before).await;
        running.pass(10).await;
        running.bench.azure.answers(Azure::ENTRA, Answer::entra("invalid_client", 700_027));
        running.pass(8).await;
        assert_eq!(told.last().failure.unwrap().code, "AADSTS700027");
        let facts = told.0.lock();
        let mut renewed = facts.iter().filter(|facts| facts.credential != before);
        assert!(renewed.all(|facts| facts.last_good_hop.as_deref() == Some("credential")));
    });
}

#[test]
fn a_credential_whose_first_try_meets_trouble_on_the_way_is_not_proven_by_it() {
    run(async {
        let busy = || Answer::Reply(503, Vec::new(), json!({}));
        let cooled = || Answer::Reply(503, vec![("retry-after", "30".to_owned())], json!({}));
        let firsts = [busy(), cooled(), Answer::Broken, Answer::Silence];
        for (first, is_restarted) in
            firsts.into_iter().flat_map(|it| [(it.clone(), false), (it, true)])
        {
            let mut running = Running::proven(|_| ()).await;
            let told = running.kept.clone();
            let before = told.last();
            running.bench.azure.answers(Azure::ENTRA, first.clone());
            let tokens = running.tokens();
            running.bench.write(5);
            running.bench.until(|| running.tokens() > tokens).await;
            running.bench.pass(Duration::from_secs(20)).await;
            assert_eq!(told.last(), before, "facts do not change while trouble may pass");
            if matches!(first, Answer::Silence) {
                // As long as a round waits for a token.
                running.pass(1).await;
            }
            if is_restarted {
                running.start_anew(running.bench.settings());
                running.bench.settle().await;
            }
            running.bench.azure.answers(Azure::ENTRA, Answer::throttled(Some(7)));
            running.pass(20).await;
            let is_new = |facts: &CanaryFacts| facts.credential != before.credential;
            let last = told.last();
            assert!(is_new(&last), "it is told once nothing is known of the one before: {first:?}");
            running.bench.azure.answers(Azure::ENTRA, Answer::entra("invalid_client", 700_027));
            running.pass(8).await;
            assert_eq!(told.last().failure.unwrap().code, "AADSTS700027");
            for facts in told.0.lock().iter().filter(|facts| is_new(facts)) {
                assert_eq!(facts.last_good_hop.as_deref(), Some("credential"), "{first:?}");
            }
        }
    });
}
