//! Trials of upstream's providers with lanyard's driver.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::case_fixture::InteropCaseFixture;
use super::{InteropSuiteFixture, UPSTREAM_PROVIDER_NAME, failed_with_causes, trial};
use crate::driver_processes::{DriverRotation, MockProvider, RunningDriver};
use crate::sign_in_method::SignInMethod;
use crate::volume::TestVolume;

/// The rotation interval of lanyard's driver.
const ROTATION_INTERVAL: Duration = Duration::from_secs(1);

/// How long a rotation may take.
const ROTATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the mock provider in upstream's own tests.
const MOCK_PROVIDER_NAME: &str = "e2e-provider";

/// Responses that the driver must reject, and a part of its error.
const INVALID_RESPONSES: [(&str, &str, &str); 5] = [
    (
        "an_error_code_of_the_provider",
        r#"{"files": [{"path": "a", "mode": 420, "contents": "x"}], "objects": {"a": "1"}, "error_code": "OutOfOrder"}"#,
        "OutOfOrder",
    ),
    (
        "a_grpc_error_of_the_provider",
        r#"{"refuse": {"code": 7, "message": "no such tenant"}}"#,
        "no such tenant",
    ),
    (
        "a_response_without_versions",
        r#"{"files": [{"path": "a", "mode": 420, "contents": "x"}], "objects": {}}"#,
        "version",
    ),
    (
        "a_path_out_of_the_volume",
        r#"{"files": [{"path": "../escaped", "mode": 420, "contents": "x"}], "objects": {"a": "1"}}"#,
        "escaped",
    ),
    (
        "a_reserved_path",
        r#"{"files": [{"path": "..data", "mode": 420, "contents": "x"}], "objects": {"a": "1"}}"#,
        "..data",
    ),
];

pub(super) fn trials(fixture: &Arc<InteropSuiteFixture>) -> Vec<Trial> {
    let named = |name: &str| format!("interop::with_lanyard_driver_{name}");
    let mut trials = vec![
        trial(
            named("upstreams_azure_provider_fills_and_rotates_a_volume"),
            fixture,
            upstream_provider_rotates,
        ),
        trial(named("a_mock_provider_fills_and_rotates_a_volume"), fixture, mock_provider_rotates),
        trial(
            named("an_oversized_response_error_names_the_size_flag"),
            fixture,
            expect_oversized_response_refused,
        ),
    ];
    trials.extend(INVALID_RESPONSES.map(|(name, answer, expected)| {
        trial(named(&format!("{name}_is_rejected")), fixture, async move |fixture| {
            expect_invalid_response_refused(fixture, name, answer, expected).await
        })
    }));
    trials
}

async fn upstream_provider_rotates(fixture: &InteropSuiteFixture) -> Result<(), Failed> {
    let case_fixture = fixture.case_fixture("ours-upstream")?;
    let _provider = case_fixture.start_upstream_provider(UPSTREAM_PROVIDER_NAME).await?;
    let driver = case_fixture.start_lanyard_node(DriverRotation::Every(ROTATION_INTERVAL)).await?;
    let objects = ["objectName: {component}\nobjectType: secret"];
    let mut volume = case_fixture.create_class_and_volume(
        "ours-upstream",
        UPSTREAM_PROVIDER_NAME,
        SignInMethod::ManagedIdentity,
        &objects,
    )?;
    case_fixture.create_pod(&mut volume)?;
    let outcome = mount_rotate_and_unmount(&case_fixture, &driver, &volume, async || {
        fixture.azure.rotate_component_credential().await.map(drop).map_err(failed_with_causes)
    });
    let outcome = outcome.await;
    volume.remove_directory();
    case_fixture.delete_pod(&volume)?;
    outcome
}

async fn mock_provider_rotates(fixture: &InteropSuiteFixture) -> Result<(), Failed> {
    let case_fixture = fixture.case_fixture("ours-mock")?;
    let mut provider = start_mock(fixture, &case_fixture).await?;
    provider.set_response(&mock_response("one", "1")).await.map_err(failed_with_causes)?;
    let driver = case_fixture.start_lanyard_node(DriverRotation::Every(ROTATION_INTERVAL)).await?;
    let mut volume = case_fixture.create_class_and_volume(
        "ours-mock",
        MOCK_PROVIDER_NAME,
        SignInMethod::ManagedIdentity,
        &[],
    )?;
    case_fixture.create_pod(&mut volume)?;
    let outcome = mount_rotate_and_unmount(&case_fixture, &driver, &volume, async || {
        provider.set_response(&mock_response("two", "2")).await.map_err(failed_with_causes)
    });
    let outcome = outcome.await;
    volume.remove_directory();
    case_fixture.delete_pod(&volume)?;
    outcome
}

/// Two files, one in a directory and one without any permissions, as upstream's end-to-end provider sends
/// them.
fn mock_response(content: &str, version: &str) -> Value {
    json!({
        "files": [
            { "path": "a/b", "mode": 0o440, "contents": content },
            { "path": "foo", "mode": 0, "contents": content },
        ],
        "objects": { "foo": version },
    })
}

async fn mount_rotate_and_unmount(
    case_fixture: &InteropCaseFixture<'_>,
    driver: &RunningDriver,
    volume: &TestVolume,
    change: impl AsyncFnOnce() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let first = case_fixture.mount_and_read(&driver.client, volume).await?;
    if first.files.is_empty() {
        return Err("the volume is mounted and empty".into());
    }
    change().await?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + ROTATION_TIMEOUT;
    loop {
        clock.sleep(Duration::from_millis(500)).await;
        driver.client.publish(volume).await.map_err(failed_with_causes)?;
        let now = case_fixture.read_contents(volume)?;
        if now.files != first.files && now.objects != first.objects {
            break;
        }
        if clock.monotonic() > deadline {
            return Err("the volume still holds the old version".into());
        }
    }
    case_fixture.unmount_and_expect_empty(&driver.client, volume).await
}

async fn expect_invalid_response_refused(
    fixture: &InteropSuiteFixture,
    name: &str,
    answer: &str,
    expected: &str,
) -> Result<(), Failed> {
    let case_fixture = fixture.case_fixture(&short_directory_name(name))?;
    let mut provider = start_mock(fixture, &case_fixture).await?;
    let answer: Value = serde_json::from_str(answer).map_err(failed_with_causes)?;
    provider.set_response(&answer).await.map_err(failed_with_causes)?;
    expect_publish_refused(&case_fixture, &short_directory_name(name), expected).await
}

async fn expect_oversized_response_refused(fixture: &InteropSuiteFixture) -> Result<(), Failed> {
    let case_fixture = fixture.case_fixture("ours-large")?;
    let mut provider = start_mock(fixture, &case_fixture).await?;
    let content = "x".repeat(5 << 20);
    provider.set_response(&mock_response(&content, "1")).await.map_err(failed_with_causes)?;
    expect_publish_refused(&case_fixture, "ours-large", "max-call-recv-msg-size").await
}

async fn expect_publish_refused(
    case_fixture: &InteropCaseFixture<'_>,
    name: &str,
    expected: &str,
) -> Result<(), Failed> {
    let driver = case_fixture.start_lanyard_node(DriverRotation::Disabled).await?;
    let volume = case_fixture.create_class_and_volume(
        name,
        MOCK_PROVIDER_NAME,
        SignInMethod::ManagedIdentity,
        &[],
    )?;
    let answer = driver.client.publish(&volume).await;
    let files = volume.read_files().unwrap_or_default();
    volume.remove_directory();
    match answer {
        Ok(()) => Err("the driver accepted the response".into()),
        Err(_) if !files.is_empty() => {
            Err(format!("the driver left the files {:?}", files.keys()).into())
        }
        Err(error) if !error.status.message().contains(expected) => {
            Err(format!("the error does not contain `{expected}`: {error}").into())
        }
        Err(_) => Ok(()),
    }
}

async fn start_mock(
    fixture: &InteropSuiteFixture,
    case_fixture: &InteropCaseFixture<'_>,
) -> Result<MockProvider, Failed> {
    let program = &fixture.programs.mock_provider;
    case_fixture
        .fixture_directory
        .start_mock_provider(program, MOCK_PROVIDER_NAME)
        .await
        .map_err(failed_with_causes)
}

/// Shortens a name for directories with sockets, because the length of socket paths is limited.
fn short_directory_name(name: &str) -> String {
    name.replace('_', "-").chars().take(24).collect()
}
