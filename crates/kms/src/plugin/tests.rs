use aws_lc_rs::rsa::KeySize;
use jiff::Timestamp;
use lanyard_clock::{Clock as _, ErrorHint as _, ManualClock};
use lanyard_vocabulary::format_error_chain;

use super::*;
use crate::fake_vault::{FakeKmsVault, FakeVaultFault, test_vector_key, test_vector_text};

const MINUTE: Duration = Duration::from_mins(1);

struct KmsPluginFixture {
    vault: Arc<FakeKmsVault>,
    plugin: KmsPlugin,
    clock: ManualClock,
}

impl KmsPluginFixture {
    fn new(layout: CiphertextLayout) -> Self {
        Self::with_vault(layout, FakeKmsVault::with_test_vector_key())
    }

    fn with_vault(layout: CiphertextLayout, vault: FakeKmsVault) -> Self {
        let (vault, clock) = (Arc::new(vault), ManualClock::starting_at(Timestamp::UNIX_EPOCH));
        let parts = KmsPluginParts {
            key: test_vector_key(),
            layout,
            vault: Arc::<FakeKmsVault>::clone(&vault),
            metrics: KmsMetrics::default(),
            clock: Arc::new(clock.clone()),
        };
        Self { vault, plugin: KmsPlugin::new(parts), clock }
    }

    /// Runs `work`, advancing the clock to each next deadline.
    async fn run_with_clock<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let task = tokio::spawn(work);
        while !task.is_finished() {
            // Let work that needs no time finish first.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            if let Some(due) = self.clock.time_until_next_deadline() {
                self.clock.advance(due);
            }
        }
        task.await.unwrap()
    }
}

fn example_plaintext() -> Vec<u8> {
    (0..32).collect()
}

/// The ciphertext of the test vector as an API server stores it.
fn vector_ciphertext(layout: CiphertextLayout) -> EncryptedValue {
    let ciphertext = test_vector_text(&format!("/{layout}/ciphertext"));
    let ciphertext = match layout {
        CiphertextLayout::Upstream => ciphertext.into_bytes(),
        CiphertextLayout::OpenShift => layout.ciphertext(&ciphertext).unwrap(),
    };
    let annotations = desired_annotations(layout, &crate::VaultReplyHeaders::default());
    EncryptedValue { ciphertext, key_id: test_vector_text("/keyId"), annotations }
}

const LAYOUTS: [CiphertextLayout; 2] = [CiphertextLayout::Upstream, CiphertextLayout::OpenShift];

#[tokio::test]
async fn ciphertexts_of_both_layouts_are_decrypted() {
    for written in LAYOUTS {
        let fixture = KmsPluginFixture::new(written);
        for read in LAYOUTS {
            let found = fixture.plugin.decrypt(&vector_ciphertext(read), MINUTE).await.unwrap();
            assert_eq!(*found, example_plaintext(), "{written} reads {read}");
        }
        let v1 = test_vector_text("/v1/ciphertext").into_bytes();
        assert_eq!(*fixture.plugin.decrypt_v1(&v1, MINUTE).await.unwrap(), example_plaintext());
    }
}

#[tokio::test]
async fn vault_requests_match_upstream_per_layout() {
    for layout in LAYOUTS {
        let fixture = KmsPluginFixture::new(layout);
        let new = fixture.plugin.encrypt(&example_plaintext(), MINUTE).await.unwrap();
        assert_eq!(new.key_id, test_vector_text("/keyId"));
        fixture.plugin.decrypt(&new, MINUTE).await.unwrap();
        fixture.plugin.prove(MINUTE).await.unwrap();
        let asked = fixture.vault.requests.lock().clone();
        assert_eq!(asked[0].2, test_vector_text(&format!("/{layout}/requestValue")));
        assert_eq!(asked[2].2, test_vector_text(&format!("/healthcheck/{layout}")));
        assert!(asked.iter().all(|(_, algorithm, _)| *algorithm == KeyAlgorithm::RsaOaep256));
    }
}

#[tokio::test]
async fn layouts_decrypt_each_other_in_both_versions() {
    for written in LAYOUTS {
        let fixture = KmsPluginFixture::new(written);
        let other = KmsPluginFixture::new(if written == CiphertextLayout::Upstream {
            CiphertextLayout::OpenShift
        } else {
            CiphertextLayout::Upstream
        });
        let new = fixture.plugin.encrypt(b"seed", MINUTE).await.unwrap();
        assert_eq!(CiphertextLayout::of_ciphertext(&new.ciphertext), Ok(written));
        assert_eq!(other.plugin.decrypt(&new, MINUTE).await.unwrap().as_slice(), b"seed");
        let old = fixture.plugin.encrypt_v1(b"key", MINUTE).await.unwrap();
        assert_eq!(other.plugin.decrypt_v1(&old, MINUTE).await.unwrap().as_slice(), b"key");
    }
}

#[tokio::test]
async fn plaintext_limit_depends_on_key_size_and_layout() {
    let sizes = [(KeySize::Rsa3072, 318, 238), (KeySize::Rsa4096, 446, 334)];
    for (size, upstream, openshift) in sizes {
        for (layout, most) in
            [(CiphertextLayout::Upstream, upstream), (CiphertextLayout::OpenShift, openshift)]
        {
            let fixture = KmsPluginFixture::with_vault(layout, FakeKmsVault::with_new_key(size));
            let longest = vec![7; most];
            let new = fixture.plugin.encrypt(&longest, MINUTE).await.unwrap();
            assert_eq!(*fixture.plugin.decrypt(&new, MINUTE).await.unwrap(), longest);
            let error = fixture.plugin.encrypt(&vec![7; most + 1], MINUTE).await.unwrap_err();
            assert_eq!(error.label(), "refused", "{layout}");
        }
    }
}

/// Each case makes one change to a valid ciphertext.
#[tokio::test]
async fn altered_ciphertext_uses_upstream_error_text() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    let change = |work: &dyn Fn(&mut EncryptedValue)| {
        let mut changed = vector_ciphertext(CiphertextLayout::Upstream);
        work(&mut changed);
        changed
    };
    let mut fork = vector_ciphertext(CiphertextLayout::OpenShift);
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
        let before = fixture.vault.request_count();
        let error = fixture.plugin.decrypt(&sealed, MINUTE).await.unwrap_err();
        assert!(format_error_chain(&error).starts_with(expected), "{}", format_error_chain(&error));
        assert!(error.hint().is_some());
        assert_eq!(fixture.vault.request_count() - before, requests, "{expected}");
    }
}

#[tokio::test]
async fn disabled_key_error_quotes_the_vault() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults([FakeVaultFault::Status(403), FakeVaultFault::Status(403)]);
    let error = fixture
        .plugin
        .decrypt(&vector_ciphertext(CiphertextLayout::Upstream), MINUTE)
        .await
        .unwrap_err();
    assert_eq!(
        format_error_chain(&error),
        "failed to decrypt, error: the key cannot be used: 403 KeyDisabled: scripted"
    );
    let error = fixture.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
    assert_eq!(
        format_error_chain(&error),
        "failed to encrypt, error: the key cannot be used: 403 KeyDisabled: scripted"
    );
    assert_eq!(fixture.vault.request_count(), 2, "a permanent error is not retried");
}

#[tokio::test]
async fn unexpected_kid_fails_encrypt_but_not_decrypt() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    for kid in [Some("https://EXAMPLE.vault.azure.net/keys/mykey/ABCD"), Some("https://x:8/"), None]
    {
        fixture.vault.inject_faults([FakeVaultFault::Kid(kid)]);
        let error = fixture.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
        let expected = format!(
            "key id initialized does not match with the key id from encryption result, expected: {}, got: {}",
            test_vector_text("/keyId"),
            kid.unwrap_or_default()
        );
        assert_eq!(error.to_string(), expected);
        fixture.vault.inject_faults([FakeVaultFault::Kid(kid)]);
        let found = fixture
            .plugin
            .decrypt(&vector_ciphertext(CiphertextLayout::Upstream), MINUTE)
            .await
            .unwrap();
        assert_eq!(*found, example_plaintext());
    }
}

#[tokio::test]
async fn malformed_vault_value_is_rejected() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::OpenShift);
    for value in ["AAEC", "", "A=="] {
        fixture.vault.inject_faults([FakeVaultFault::Value(value.to_owned())]);
        let error = fixture.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
        assert!(matches!(error, KmsPluginError::Ciphertext(_)), "{value}: {error}");
    }
    for (layout, value) in
        [(CiphertextLayout::Upstream, "AAE="), (CiphertextLayout::OpenShift, "QUFFQw==")]
    {
        fixture.vault.inject_faults([FakeVaultFault::Value(value.to_owned())]);
        let error = fixture.plugin.decrypt(&vector_ciphertext(layout), MINUTE).await.unwrap_err();
        let text = format_error_chain(&error);
        assert!(text.starts_with("failed to base64 decode result, error: "), "{text}");
        assert!(!text.contains(value), "{text}");
    }
}

#[tokio::test]
async fn transient_errors_are_retried_within_deadline() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults([
        FakeVaultFault::Status(503),
        FakeVaultFault::Status(500),
        FakeVaultFault::Status(429),
    ]);
    let plugin = fixture.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(10)).await };
    fixture.run_with_clock(work).await.unwrap();
    assert_eq!(fixture.vault.request_count(), 4);

    fixture.vault.inject_faults((0..9).map(|_| FakeVaultFault::Status(503)));
    let plugin = fixture.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(1)).await };
    let error = fixture.run_with_clock(work).await.unwrap_err();
    assert!(matches!(error, KmsPluginError::Encrypt(KeyOperationError::Failed { .. })), "{error}");
    assert!(fixture.vault.request_count() - 4 <= 4, "{}", fixture.vault.request_count());
}

#[tokio::test]
async fn hanging_vault_is_retried_within_deadline() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults([FakeVaultFault::NoReply]);
    let plugin = fixture.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(10)).await };
    fixture.run_with_clock(work).await.unwrap();
    assert_eq!(fixture.vault.request_count(), 2);

    fixture.vault.inject_faults((0..9).map(|_| FakeVaultFault::NoReply));
    let plugin = fixture.plugin.clone();
    let began = fixture.plugin.clock().monotonic();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(3)).await };
    let error = fixture.run_with_clock(work).await.unwrap_err();
    assert!(
        matches!(error, KmsPluginError::Encrypt(KeyOperationError::TimedOut { .. })),
        "{error}"
    );
    let took = fixture.plugin.clock().monotonic().saturating_sub(began);
    assert!(took <= Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn slow_vault_is_awaited_within_default_deadline() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults([FakeVaultFault::DelayedReply(
        fixture.clock.clone(),
        Duration::from_secs(2),
    )]);
    let plugin = fixture.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_millis(2_900)).await };
    fixture.run_with_clock(work).await.unwrap();
    assert_eq!(fixture.vault.request_count(), 1);
}

#[tokio::test]
async fn token_timeout_is_reported_instead_of_vault() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults([FakeVaultFault::NoToken]);
    let plugin = fixture.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_millis(2_900)).await };
    let error = fixture.run_with_clock(work).await.unwrap_err();
    assert_eq!(
        format_error_chain(&error),
        "failed to encrypt, error: no token for the vault within 2600 ms"
    );
    assert_eq!(error.label(), "token");
    let hint = error.hint().unwrap();
    assert!(hint.contains("Entra") && !hint.contains("firewall"), "{hint}");
    assert_eq!(fixture.vault.request_count(), 0, "no request was sent to the vault");
}

#[tokio::test]
async fn longer_deadline_does_not_share_timeout_failure() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults([FakeVaultFault::NoReply]);
    let (short, long) = (fixture.plugin.clone(), fixture.plugin.clone());
    let work = async move {
        let short = short.prove(Duration::from_millis(500));
        tokio::join!(short, long.prove(MINUTE))
    };
    let (short, long) = fixture.run_with_clock(work).await;
    assert!(short.unwrap_err().is_timeout());
    long.unwrap();
}

#[tokio::test]
async fn short_deadline_does_not_wait_for_running_proof() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.vault.inject_faults((0..9).map(|_| FakeVaultFault::NoReply));
    let (long, short) = (fixture.plugin.clone(), fixture.plugin.clone());
    let clock = fixture.clock.clone();
    let work = async move {
        let short = async {
            clock.sleep(Duration::from_secs(4)).await;
            let began = clock.monotonic();
            let outcome = short.prove(Duration::from_millis(2_900)).await;
            (outcome, clock.monotonic().saturating_sub(began))
        };
        tokio::join!(long.prove(Duration::from_secs(20)), short)
    };
    let (long, (short, took)) = fixture.run_with_clock(work).await;
    assert!(long.unwrap_err().is_timeout());
    let short = short.unwrap_err();
    assert_eq!(took, Duration::from_millis(2_900));
    assert!(short.is_timeout() && short.label() == "timed-out", "{short}");
    let text = format_error_chain(&*short);
    assert!(text.contains("within 2900 ms") && text.contains("began 6900 ms ago"), "{text}");
    assert!(short.hint().unwrap().contains("Entra"));
    assert_eq!(fixture.vault.request_count(), 3, "the second caller started no proof of its own");
}

#[tokio::test]
async fn expired_deadline_sends_no_request() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    let error = fixture.plugin.prove(Duration::ZERO).await.unwrap_err();
    assert!(matches!(*error, KmsPluginError::ProofTimedOut { .. }), "{error}");
    assert_eq!(fixture.vault.request_count(), 0);
}

#[tokio::test]
async fn only_successful_proof_is_cached() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    fixture.plugin.prove(MINUTE).await.unwrap();
    fixture.plugin.prove(MINUTE).await.unwrap();
    assert_eq!(fixture.vault.request_count(), 2, "one request each to encrypt and to decrypt");
    fixture.clock.advance(KmsPlugin::PROOF_VALIDITY);
    fixture.vault.inject_faults([FakeVaultFault::Status(403)]);
    assert!(fixture.plugin.prove(MINUTE).await.is_err());
    fixture.plugin.prove(MINUTE).await.unwrap();
    assert_eq!(fixture.vault.request_count(), 5);
}

#[tokio::test]
async fn concurrent_callers_share_one_proof() {
    for fault in [None, Some(FakeVaultFault::Status(403))] {
        let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
        let requests = if fault.is_some() { 1 } else { 2 };
        fixture.vault.inject_faults(fault);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let plugin = fixture.plugin.clone();
            asking.spawn(async move { plugin.prove(MINUTE).await });
        }
        let mut good = 0;
        while let Some(asked) = asking.join_next().await {
            good += usize::from(asked.unwrap().is_ok());
        }
        assert_eq!(fixture.vault.request_count(), requests);
        assert_eq!(good, if requests == 2 { 100 } else { 0 });
    }
}

#[tokio::test]
async fn wrong_decryption_fails_the_proof() {
    let fixture = KmsPluginFixture::new(CiphertextLayout::Upstream);
    let other = CiphertextLayout::Upstream.encrypt_value(b"something else").to_string();
    fixture.vault.inject_faults([FakeVaultFault::Kid(Some(
        "https://example.vault.azure.net/keys/mykey/ABCD",
    ))]);
    fixture.vault.inject_faults([FakeVaultFault::Value(other)]);
    let error = fixture.plugin.prove(MINUTE).await.unwrap_err();
    assert!(matches!(*error, KmsPluginError::ProofMismatch), "{error}");
}
