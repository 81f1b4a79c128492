use aws_lc_rs::rsa::KeySize;
use jiff::Timestamp;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_vocabulary::causes;

use super::*;
use crate::software::{Instead, SoftwareVault, pinned, text};

const MINUTE: Duration = Duration::from_mins(1);

struct Bench {
    vault: Arc<SoftwareVault>,
    plugin: Plugin,
    clock: ManualClock,
}

impl Bench {
    fn new(layout: Layout) -> Self {
        Self::over(layout, SoftwareVault::of_vector())
    }

    fn over(layout: Layout, vault: SoftwareVault) -> Self {
        let (vault, clock) = (Arc::new(vault), ManualClock::starting_at(Timestamp::UNIX_EPOCH));
        let parts = PluginParts {
            key: pinned(),
            layout,
            vault: Arc::<SoftwareVault>::clone(&vault),
            metrics: KmsMetrics::default(),
            clock: Arc::new(clock.clone()),
        };
        Self { vault, plugin: Plugin::new(parts), clock }
    }

    /// Runs `work` while the clock jumps to whatever is slept for.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let task = tokio::spawn(work);
        while !task.is_finished() {
            // What can be done without time comes first.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            if let Some(due) = self.clock.next_due() {
                self.clock.advance(due);
            }
        }
        task.await.unwrap()
    }
}

fn plaintext() -> Vec<u8> {
    (0..32).collect()
}

/// The vector's ciphertext as an API server keeps it.
fn sealed(layout: Layout) -> Sealed {
    let ciphertext = text(&format!("/{layout}/ciphertext"));
    let ciphertext = match layout {
        Layout::Upstream => ciphertext.into_bytes(),
        Layout::OpenShift => layout.ciphertext(&ciphertext).unwrap(),
    };
    let annotations = desired_annotations(layout, &crate::ReplyStamps::default());
    Sealed { ciphertext, key_id: text("/keyId"), annotations }
}

const LAYOUTS: [Layout; 2] = [Layout::Upstream, Layout::OpenShift];

#[tokio::test]
async fn what_either_plugin_wrote_is_read_whatever_is_written() {
    for written in LAYOUTS {
        let bench = Bench::new(written);
        for read in LAYOUTS {
            let found = bench.plugin.decrypt(&sealed(read), MINUTE).await.unwrap();
            assert_eq!(*found, plaintext(), "{written} reads {read}");
        }
        let v1 = text("/v1/ciphertext").into_bytes();
        assert_eq!(*bench.plugin.decrypt_v1(&v1, MINUTE).await.unwrap(), plaintext());
    }
}

#[tokio::test]
async fn the_vault_is_asked_in_the_words_of_the_plugin_whose_layout_is_written() {
    for layout in LAYOUTS {
        let bench = Bench::new(layout);
        let new = bench.plugin.encrypt(&plaintext(), MINUTE).await.unwrap();
        assert_eq!(new.key_id, text("/keyId"));
        bench.plugin.decrypt(&new, MINUTE).await.unwrap();
        bench.plugin.prove(MINUTE).await.unwrap();
        let asked = bench.vault.asked.lock().clone();
        assert_eq!(asked[0].2, text(&format!("/{layout}/requestValue")));
        assert_eq!(asked[2].2, text(&format!("/healthcheck/{layout}")));
        assert!(asked.iter().all(|(_, algorithm, _)| *algorithm == Algorithm::RsaOaep256));
    }
}

#[tokio::test]
async fn what_one_writes_the_other_reads_in_both_versions() {
    for written in LAYOUTS {
        let bench = Bench::new(written);
        let other = Bench::new(if written == Layout::Upstream {
            Layout::OpenShift
        } else {
            Layout::Upstream
        });
        let new = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap();
        assert_eq!(Layout::of_ciphertext(&new.ciphertext), Ok(written));
        assert_eq!(other.plugin.decrypt(&new, MINUTE).await.unwrap().as_slice(), b"seed");
        let old = bench.plugin.encrypt_v1(b"key", MINUTE).await.unwrap();
        assert_eq!(other.plugin.decrypt_v1(&old, MINUTE).await.unwrap().as_slice(), b"key");
    }
}

#[tokio::test]
async fn keys_of_every_size_take_what_the_layout_leaves() {
    let sizes = [(KeySize::Rsa3072, 318, 238), (KeySize::Rsa4096, 446, 334)];
    for (size, upstream, openshift) in sizes {
        for (layout, most) in [(Layout::Upstream, upstream), (Layout::OpenShift, openshift)] {
            let bench = Bench::over(layout, SoftwareVault::of_size(size));
            let longest = vec![7; most];
            let new = bench.plugin.encrypt(&longest, MINUTE).await.unwrap();
            assert_eq!(*bench.plugin.decrypt(&new, MINUTE).await.unwrap(), longest);
            let error = bench.plugin.encrypt(&vec![7; most + 1], MINUTE).await.unwrap_err();
            assert_eq!(error.word(), "refused", "{layout}");
        }
    }
}

/// One change each to what is good.
#[tokio::test]
async fn a_ciphertext_with_one_thing_wrong_is_refused_in_the_words_of_the_other_plugins() {
    let bench = Bench::new(Layout::Upstream);
    let change = |work: &dyn Fn(&mut Sealed)| {
        let mut changed = sealed(Layout::Upstream);
        work(&mut changed);
        changed
    };
    let mut fork = sealed(Layout::OpenShift);
    fork.ciphertext.pop();
    let cases = [
        (
            change(&|it| it.annotations.clear()),
            "invalid annotations, annotations cannot be empty",
            0,
        ),
        (
            change(&|it| "x".clone_into(&mut it.key_id)),
            "key id x does not match expected key id",
            0,
        ),
        (
            change(&|it| drop(it.annotations.remove("algorithm.azure.akv.io"))),
            "algorithm  does not match expected algorithm RSA-OAEP-256",
            0,
        ),
        (
            change(&|it| drop(it.annotations.insert("version.azure.akv.io".into(), "2".into()))),
            "version 2 does not match expected version 1",
            0,
        ),
        (
            change(&|it| it.ciphertext.extend(b"==")),
            "failed to decrypt, error: a ciphertext of 344 bytes has neither",
            0,
        ),
        (fork, "failed to decrypt, error: a ciphertext of 255 bytes has neither", 0),
        (
            change(&|it| it.ciphertext[99] = if it.ciphertext[99] == b'A' { b'B' } else { b'A' }),
            "failed to decrypt, error: the vault refused: 400",
            1,
        ),
    ];
    for (sealed, expected, requests) in cases {
        let before = bench.vault.count();
        let error = bench.plugin.decrypt(&sealed, MINUTE).await.unwrap_err();
        assert!(causes(&error).starts_with(expected), "{}", causes(&error));
        assert!(error.hint().is_some());
        assert_eq!(bench.vault.count() - before, requests, "{expected}");
    }
}

#[tokio::test]
async fn a_disabled_key_says_so_in_the_words_of_the_vault() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to([Instead::Status(403), Instead::Status(403)]);
    let error = bench.plugin.decrypt(&sealed(Layout::Upstream), MINUTE).await.unwrap_err();
    assert_eq!(causes(&error), "failed to decrypt, error: the key cannot be used: 403: scripted");
    let error = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
    assert_eq!(causes(&error), "failed to encrypt, error: the key cannot be used: 403: scripted");
    assert_eq!(bench.vault.count(), 2, "what does not pass is not asked again");
}

#[tokio::test]
async fn a_kid_of_another_name_keeps_what_was_encrypted_out_of_etcd_and_is_no_matter_on_the_way_back()
 {
    let bench = Bench::new(Layout::Upstream);
    for kid in [Some("https://EXAMPLE.vault.azure.net/keys/mykey/ABCD"), Some("https://x:8/"), None]
    {
        bench.vault.is_to([Instead::Kid(kid)]);
        let error = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
        let expected = format!(
            "key id initialized does not match with the key id from encryption result, expected: {}, got: {}",
            text("/keyId"),
            kid.unwrap_or_default()
        );
        assert_eq!(error.to_string(), expected);
        bench.vault.is_to([Instead::Kid(kid)]);
        let found = bench.plugin.decrypt(&sealed(Layout::Upstream), MINUTE).await.unwrap();
        assert_eq!(*found, plaintext());
    }
}

#[tokio::test]
async fn a_value_that_is_not_what_a_vault_sends_is_not_taken() {
    let bench = Bench::new(Layout::OpenShift);
    for value in ["AAEC", "", "A=="] {
        bench.vault.is_to([Instead::Value(value.to_owned())]);
        let error = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
        assert!(matches!(error, PluginError::Ciphertext(_)), "{value}: {error}");
    }
    for (layout, value) in [(Layout::Upstream, "AAE="), (Layout::OpenShift, "QUFFQw==")] {
        bench.vault.is_to([Instead::Value(value.to_owned())]);
        let error = bench.plugin.decrypt(&sealed(layout), MINUTE).await.unwrap_err();
        let told = causes(&error);
        assert!(told.starts_with("failed to base64 decode result, error: "), "{told}");
        assert!(!told.contains(value), "{told}");
    }
}

#[tokio::test]
async fn what_passes_is_asked_again_within_the_time_of_the_request() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to([Instead::Status(503), Instead::Status(500), Instead::Status(429)]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(10)).await };
    bench.run(work).await.unwrap();
    assert_eq!(bench.vault.count(), 4);

    bench.vault.is_to((0..9).map(|_| Instead::Status(503)));
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(1)).await };
    let error = bench.run(work).await.unwrap_err();
    assert!(matches!(error, PluginError::Encrypt(VaultError::Failed { .. })), "{error}");
    assert!(bench.vault.count() - 4 <= 4, "{}", bench.vault.count());
}

#[tokio::test]
async fn a_vault_that_hangs_is_asked_again_and_given_up_in_time() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to([Instead::Hang]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(10)).await };
    bench.run(work).await.unwrap();
    assert_eq!(bench.vault.count(), 2);

    bench.vault.is_to((0..9).map(|_| Instead::Hang));
    let plugin = bench.plugin.clone();
    let began = bench.plugin.clock().monotonic();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(3)).await };
    let error = bench.run(work).await.unwrap_err();
    assert!(matches!(error, PluginError::Encrypt(VaultError::TimedOut { .. })), "{error}");
    let took = bench.plugin.clock().monotonic().saturating_sub(began);
    assert!(took <= Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_vault_that_is_slow_and_good_is_waited_for_with_the_default_of_the_api_server() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to([Instead::Late(bench.clock.clone(), Duration::from_secs(2))]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_millis(2_900)).await };
    bench.run(work).await.unwrap();
    assert_eq!(bench.vault.count(), 1);
}

#[tokio::test]
async fn whoever_issues_no_token_is_named_and_not_the_vault() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to([Instead::NoToken]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_millis(2_900)).await };
    let error = bench.run(work).await.unwrap_err();
    assert_eq!(causes(&error), "failed to encrypt, error: no token for the vault within 2600 ms");
    assert_eq!(error.word(), "token");
    let hint = error.hint().unwrap();
    assert!(hint.contains("Entra") && !hint.contains("firewall"), "{hint}");
    assert_eq!(bench.vault.count(), 0, "the vault was not asked");
}

#[tokio::test]
async fn who_has_more_time_does_not_take_over_the_failure_of_who_had_little() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to([Instead::Hang]);
    let (hasty, patient) = (bench.plugin.clone(), bench.plugin.clone());
    let work = async move {
        let hasty = hasty.prove(Duration::from_millis(500));
        tokio::join!(hasty, patient.prove(MINUTE))
    };
    let (hasty, patient) = bench.run(work).await;
    assert!(hasty.unwrap_err().is_of_time());
    patient.unwrap();
}

#[tokio::test]
async fn who_has_little_time_does_not_wait_for_the_end_of_a_proof_that_has_much() {
    let bench = Bench::new(Layout::Upstream);
    bench.vault.is_to((0..9).map(|_| Instead::Hang));
    let (patient, hasty) = (bench.plugin.clone(), bench.plugin.clone());
    let clock = bench.clock.clone();
    let work = async move {
        let hasty = async {
            clock.sleep(Duration::from_secs(4)).await;
            let began = clock.monotonic();
            let outcome = hasty.prove(Duration::from_millis(2_900)).await;
            (outcome, clock.monotonic().saturating_sub(began))
        };
        tokio::join!(patient.prove(Duration::from_secs(20)), hasty)
    };
    let (patient, (hasty, took)) = bench.run(work).await;
    assert!(patient.unwrap_err().is_of_time());
    let hasty = hasty.unwrap_err();
    assert_eq!(took, Duration::from_millis(2_900));
    assert!(hasty.is_of_time() && hasty.word() == "timed-out", "{hasty}");
    let told = causes(&*hasty);
    assert!(told.contains("within 2900 ms") && told.contains("began 6900 ms ago"), "{told}");
    assert!(hasty.hint().unwrap().contains("Entra"));
    assert_eq!(bench.vault.count(), 3, "the hasty one made no try of its own");
}

#[tokio::test]
async fn who_has_no_time_left_makes_no_try_of_no_length() {
    let bench = Bench::new(Layout::Upstream);
    let error = bench.plugin.prove(Duration::ZERO).await.unwrap_err();
    assert!(matches!(*error, PluginError::ProofTimedOut { .. }), "{error}");
    assert_eq!(bench.vault.count(), 0);
}

#[tokio::test]
async fn a_good_proof_counts_for_ten_seconds_and_a_bad_one_does_not() {
    let bench = Bench::new(Layout::Upstream);
    bench.plugin.prove(MINUTE).await.unwrap();
    bench.plugin.prove(MINUTE).await.unwrap();
    assert_eq!(bench.vault.count(), 2, "one request each to encrypt and to decrypt");
    bench.clock.advance(Plugin::PROOF_COUNTS);
    bench.vault.is_to([Instead::Status(403)]);
    assert!(bench.plugin.prove(MINUTE).await.is_err());
    bench.plugin.prove(MINUTE).await.unwrap();
    assert_eq!(bench.vault.count(), 5);
}

#[tokio::test]
async fn a_hundred_who_ask_at_once_share_one_proof_good_or_bad() {
    for instead in [None, Some(Instead::Status(403))] {
        let bench = Bench::new(Layout::Upstream);
        let requests = if instead.is_some() { 1 } else { 2 };
        bench.vault.is_to(instead);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let plugin = bench.plugin.clone();
            asking.spawn(async move { plugin.prove(MINUTE).await });
        }
        let mut good = 0;
        while let Some(asked) = asking.join_next().await {
            good += usize::from(asked.unwrap().is_ok());
        }
        assert_eq!(bench.vault.count(), requests);
        assert_eq!(good, if requests == 2 { 100 } else { 0 });
    }
}

#[tokio::test]
async fn a_vault_that_decrypts_something_else_proves_nothing() {
    let bench = Bench::new(Layout::Upstream);
    let other = Layout::Upstream.encrypt_value(b"something else").to_string();
    bench.vault.is_to([Instead::Kid(Some("https://example.vault.azure.net/keys/mykey/ABCD"))]);
    bench.vault.is_to([Instead::Value(other)]);
    let error = bench.plugin.prove(MINUTE).await.unwrap_err();
    assert!(matches!(*error, PluginError::Mismatch), "{error}");
}
