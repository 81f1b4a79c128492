//! Other people's providers under our driver.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::stack::Stack;
use super::{Stage, UPSTREAM, chain, trial};
use crate::ground::Holder;
use crate::peers::{MockProvider, Rotation, RunningDriver};
use crate::volume::Volume;

/// How often our driver looks again.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a rotation may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The name of the mock provider, which upstream's own tests use.
const MOCK: &str = "e2e-provider";

/// Answers that must not become a volume, and what the refusal must say.
const UNFIT: [(&str, &str, &str); 5] = [
    (
        "an_error_code_of_the_provider",
        r#"{"files": [{"path": "a", "mode": 420, "contents": "x"}], "objects": {"a": "1"}, "error_code": "OutOfOrder"}"#,
        "OutOfOrder",
    ),
    (
        "a_refusal_of_the_provider",
        r#"{"refuse": {"code": 7, "message": "no such tenant"}}"#,
        "no such tenant",
    ),
    (
        "an_answer_without_versions",
        r#"{"files": [{"path": "a", "mode": 420, "contents": "x"}], "objects": {}}"#,
        "version",
    ),
    (
        "a_path_out_of_the_volume",
        r#"{"files": [{"path": "../escaped", "mode": 420, "contents": "x"}], "objects": {"a": "1"}}"#,
        "escaped",
    ),
    (
        "a_path_of_the_layout",
        r#"{"files": [{"path": "..data", "mode": 420, "contents": "x"}], "objects": {"a": "1"}}"#,
        "..data",
    ),
];

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let named = |name: &str| format!("interop::under_our_driver_{name}");
    let mut trials = vec![
        trial(named("upstreams_azure_provider_fills_and_rotates_a_volume"), stage, upstream),
        trial(named("a_mock_provider_fills_and_rotates_a_volume"), stage, mock),
        trial(
            named("an_answer_beyond_the_limit_is_refused_with_the_flag_that_bounds_it"),
            stage,
            large,
        ),
    ];
    trials.extend(UNFIT.map(|(name, answer, said)| {
        trial(named(&format!("{name}_is_no_volume")), stage, async move |stage| {
            unfit(stage, name, answer, said).await
        })
    }));
    trials
}

async fn upstream(stage: &Stage) -> Result<(), Failed> {
    let stack = stage.stack("ours-upstream")?;
    let _provider = stack.upstream_provider(UPSTREAM).await?;
    let driver = stack.lanyard(Rotation::Every(INTERVAL)).await?;
    let objects = ["objectName: {component}\nobjectType: secret"];
    let mut volume = stack.volume("ours-upstream", UPSTREAM, Holder::ManagedIdentity, &objects)?;
    stack.give_pod(&mut volume)?;
    let outcome = rotate(&stack, &driver, &volume, async || {
        stage.azure.rotate_component().await.map(drop).map_err(chain)
    });
    let outcome = outcome.await;
    volume.clear();
    stack.take_pod(&volume)?;
    outcome
}

async fn mock(stage: &Stage) -> Result<(), Failed> {
    let stack = stage.stack("ours-mock")?;
    let mut provider = start_mock(stage, &stack).await?;
    provider.answer(&answer("one", "1")).await.map_err(chain)?;
    let driver = stack.lanyard(Rotation::Every(INTERVAL)).await?;
    let mut volume = stack.volume("ours-mock", MOCK, Holder::ManagedIdentity, &[])?;
    stack.give_pod(&mut volume)?;
    let outcome = rotate(&stack, &driver, &volume, async || {
        provider.answer(&answer("two", "2")).await.map_err(chain)
    });
    let outcome = outcome.await;
    volume.clear();
    stack.take_pod(&volume)?;
    outcome
}

/// Two files, one in a directory, one with no permissions at all, as upstream's own provider for
/// tests sends them.
fn answer(content: &str, version: &str) -> Value {
    json!({
        "files": [
            { "path": "a/b", "mode": 0o440, "contents": content },
            { "path": "foo", "mode": 0, "contents": content },
        ],
        "objects": { "foo": version },
    })
}

async fn rotate(
    stack: &Stack<'_>,
    driver: &RunningDriver,
    volume: &Volume,
    change: impl AsyncFnOnce() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let first = stack.mount(&driver.plugin, volume).await?;
    if first.files.is_empty() {
        return Err("the volume is mounted and empty".into());
    }
    change().await?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    loop {
        clock.sleep(Duration::from_millis(500)).await;
        driver.plugin.publish(volume).await.map_err(chain)?;
        let now = stack.seen(volume)?;
        if now.files != first.files && now.objects != first.objects {
            break;
        }
        if clock.monotonic() > deadline {
            return Err("the volume still holds the old version".into());
        }
    }
    stack.unmount(&driver.plugin, volume).await
}

async fn unfit(stage: &Stage, name: &str, answer: &str, said: &str) -> Result<(), Failed> {
    let stack = stage.stack(&short(name))?;
    let mut provider = start_mock(stage, &stack).await?;
    let answer: Value = serde_json::from_str(answer).map_err(chain)?;
    provider.answer(&answer).await.map_err(chain)?;
    refused(&stack, &short(name), said).await
}

async fn large(stage: &Stage) -> Result<(), Failed> {
    let stack = stage.stack("ours-large")?;
    let mut provider = start_mock(stage, &stack).await?;
    let content = "x".repeat(5 << 20);
    provider.answer(&answer(&content, "1")).await.map_err(chain)?;
    refused(&stack, "ours-large", "max-call-recv-msg-size").await
}

async fn refused(stack: &Stack<'_>, name: &str, said: &str) -> Result<(), Failed> {
    let driver = stack.lanyard(Rotation::Off).await?;
    let volume = stack.volume(name, MOCK, Holder::ManagedIdentity, &[])?;
    let answer = driver.plugin.publish(&volume).await;
    let files = volume.files().unwrap_or_default();
    volume.clear();
    match answer {
        Ok(()) => Err("it became a volume".into()),
        Err(_) if !files.is_empty() => Err(format!("it left {:?}", files.keys()).into()),
        Err(error) if !error.status.message().contains(said) => {
            Err(format!("the refusal does not say `{said}`: {error}").into())
        }
        Err(_) => Ok(()),
    }
}

async fn start_mock(stage: &Stage, stack: &Stack<'_>) -> Result<MockProvider, Failed> {
    let program = &stage.programs.mock_provider;
    stack.nook.mock_provider(program, MOCK).await.map_err(chain)
}

/// Names of directories with sockets stay short.
fn short(name: &str) -> String {
    name.replace('_', "-").chars().take(24).collect()
}
