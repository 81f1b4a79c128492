//! The crash tests: kill a real `lanyard node` at every step of a publish, a rotation, a scrub, a takeover of
//! another driver's volume and an unpublish, on real tmpfs mounts, and check that the next process recovers.
//!
//! This program acts as the kubelet, and as a third-party provider on its socket. The feature `crash-points`
//! is enabled in every build of `cargo xtask test`.

mod crash {
    pub(crate) mod fake_provider;
    pub(crate) mod node;
    pub(crate) mod plugin_process;
}

use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use crash::node::{CrashTestContainer, CrashTestNode, VolumeStaging};
use crash::plugin_process::{CrashTestPlugin, CrashTrigger, CsiCallResult, ProcessClock};
use libtest_mimic::{Arguments, Failed, Trial};

use lanyard_volume::{VolumeOperation, VolumeStep};

fn main() -> ExitCode {
    let stagings = [(VolumeStaging::Detached, ""), (VolumeStaging::InPlace, "-in-place")];
    let mut trials = Vec::new();
    let operations =
        stagings.into_iter().flat_map(|it| VolumeOperation::ALL.map(|work| (it, work)));
    let operations = operations.filter(|((staging, _), work)| {
        // These operations start with a mounted volume, independent of the staging.
        *staging == VolumeStaging::Detached
            || !matches!(work, VolumeOperation::Scrub | VolumeOperation::AdoptMount)
    });
    for ((staging, suffix), work) in operations {
        trials.extend(crash_triggers(work).map(|moment| {
            let name = format!("{}{suffix}/{moment}", work_name(work));
            crash_trial(name, staging, async move |node| run_killed(node, work, moment).await)
        }));
    }
    trials.push(crash_trial("reboot".to_owned(), VolumeStaging::Detached, test_reboot));
    let mut arguments = Arguments::from_args();
    arguments.include_ignored &= is_initial_root();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// All steps, and for steps in loops a second trigger in the middle, when some of the files exist.
fn crash_triggers(work: VolumeOperation) -> impl Iterator<Item = CrashTrigger> {
    let middles = match work {
        VolumeOperation::Publish | VolumeOperation::Rotate | VolumeOperation::AdoptMount => {
            vec![VolumeStep::WriteFiles]
        }
        VolumeOperation::Scrub => vec![VolumeStep::EmptyRetired],
        VolumeOperation::Unpublish => vec![VolumeStep::RemoveLinks, VolumeStep::RemoveGenerations],
    };
    let middles = middles.into_iter().map(|step| CrashTrigger { step, occurrence: 2 });
    work.steps().map(|step| CrashTrigger { step, occurrence: 1 }).chain(middles)
}

fn crash_trial<F>(name: String, staging: VolumeStaging, run: F) -> Trial
where
    F: AsyncFnOnce(&CrashTestNode) -> Result<(), Failed> + Send + 'static,
{
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let node = CrashTestNode::new(staging)?;
            run(&node).await
        })
    });
    trial.with_ignored_flag(!is_initial_root())
}

/// Whether this process may mount and owns the directories above its sockets. In a user namespace an unknown
/// user owns `/`, and the plugin does not trust provider sockets below it.
fn is_initial_root() -> bool {
    let owner = std::fs::metadata("/").map(|it| it.uid());
    rustix::process::geteuid().is_root() && owner.is_ok_and(|owner| owner == 0)
}

const fn work_name(work: VolumeOperation) -> &'static str {
    match work {
        VolumeOperation::Publish => "publish",
        VolumeOperation::Rotate => "rotate",
        VolumeOperation::Scrub => "scrub",
        VolumeOperation::AdoptMount => "take-over",
        VolumeOperation::Unpublish => "unpublish",
    }
}

async fn run_killed(
    node: &CrashTestNode,
    work: VolumeOperation,
    moment: CrashTrigger,
) -> Result<(), Failed> {
    match work {
        VolumeOperation::Publish => crash_publish(node, moment).await,
        VolumeOperation::Rotate => crash_rotate(node, moment).await,
        VolumeOperation::Scrub => crash_scrub(node, moment).await,
        VolumeOperation::AdoptMount => crash_take_over(node, moment).await,
        VolumeOperation::Unpublish => crash_unpublish(node, moment).await,
    }
}

async fn crash_publish(node: &CrashTestNode, moment: CrashTrigger) -> Result<(), Failed> {
    node.provide_version("1");
    node.start_plugin(Some(moment)).await?.publish("1").await.expect_killed_at(moment)?;
    let observed = node.visible_version()?;

    let mut plugin = node.start_plugin(None).await?;
    // The provider returns no content, so a publish may succeed only if the volume is complete.
    node.refuse_content();
    match (plugin.publish("1").await, observed.as_deref()) {
        (CsiCallResult::Refused(_), None) | (CsiCallResult::Good, Some("1")) => {}
        (answer, observed) => {
            let observed = observed.unwrap_or("nothing");
            return Err(format!("without its source, {observed} was called {answer}").into());
        }
    }
    node.provide_version("1");
    plugin.publish("1").await.expect_good()?;
    node.check_version("1")?;
    node.provide_version("2");
    plugin.publish("2").await.expect_good()?;
    node.check_version("2")?;
    plugin.unpublish().await.expect_good()?;
    node.check_removed()
}

async fn crash_rotate(node: &CrashTestNode, moment: CrashTrigger) -> Result<(), Failed> {
    node.provide_version("1");
    node.start_plugin(None).await?.publish("1").await.expect_good()?;
    let container = node.start_container()?;

    let mut plugin = crash_during_update(node, &container, ["1", "2"], moment).await?;
    drop(container);
    plugin.unpublish().await.expect_good()?;
    node.check_removed()
}

/// Kills a process while it publishes the second version to a mounted volume, and starts the next one, while
/// a container is running.
async fn crash_during_update(
    node: &CrashTestNode,
    container: &CrashTestContainer,
    [first, second]: [&str; 2],
    moment: CrashTrigger,
) -> Result<CrashTestPlugin, Failed> {
    node.provide_version(second);
    node.start_plugin(Some(moment)).await?.publish(second).await.expect_killed_at(moment)?;
    let observed = node.visible_version()?.unwrap_or_default();
    if observed != first && observed != second {
        return Err(format!("after the crash a reader sees {observed:?}").into());
    }
    container.check_version(Some(&observed))?;

    let mut plugin = node.start_plugin(None).await?;
    // A pod uses the volume, so the volume must stay regardless of the provider.
    node.refuse_content();
    plugin.publish(second).await.expect_good()?;
    node.check_version(&observed)?;
    node.provide_version("3");
    plugin.publish("3").await.expect_good()?;
    node.check_version("3")?;
    // The container still uses the mount that it started with.
    container.check_version(Some("3"))?;
    Ok(plugin)
}

async fn crash_take_over(node: &CrashTestNode, moment: CrashTrigger) -> Result<(), Failed> {
    node.mount_as_upstream("0")?;
    let container = node.start_container()?;
    let mut plugin = crash_during_update(node, &container, ["0", "2"], moment).await?;
    node.check_mount_options()?;
    drop(container);
    plugin.unpublish().await.expect_good()?;
    node.check_removed()
}

/// No call starts a scrub: it is due when a process finds retired content of sufficient age.
async fn crash_scrub(node: &CrashTestNode, moment: CrashTrigger) -> Result<(), Failed> {
    let mut plugin = node.start_plugin(None).await?;
    node.provide_version("1");
    plugin.publish("1").await.expect_good()?;
    let retired = node.open_files()?;
    node.provide_version("2");
    plugin.publish("2").await.expect_good()?;
    let (container, current) = (node.start_container()?, node.open_files()?);
    drop(plugin);

    let mut killed = node.launch_plugin(Some(moment), ProcessClock::OneHourAhead)?;
    killed.expect_killed_at(moment).await?;
    let emptied = usize::try_from(moment.occurrence)? - 1;
    if retired.count_emptied()? != emptied {
        let files = retired.count_emptied()?;
        return Err(format!("the crash left {files} emptied files, not {emptied}").into());
    }
    node.check_version("2")?;

    // The next process continues the scrub and changes no other files.
    let mut plugin = node.launch_plugin(None, ProcessClock::OneHourAhead)?;
    plugin.wait_until_serving().await?;
    retired.wait_until_emptied().await?;
    if current.count_emptied()? > 0 {
        return Err("visible files were emptied".into());
    }
    node.refuse_content();
    plugin.publish("2").await.expect_good()?;
    node.check_version("2")?;
    node.provide_version("3");
    plugin.publish("3").await.expect_good()?;
    node.check_version("3")?;
    container.check_version(Some("3"))?;
    drop((container, retired, current));
    plugin.unpublish().await.expect_good()?;
    node.check_removed()
}

async fn crash_unpublish(node: &CrashTestNode, moment: CrashTrigger) -> Result<(), Failed> {
    let mut plugin = node.start_plugin(None).await?;
    for version in ["1", "2"] {
        node.provide_version(version);
        plugin.publish(version).await.expect_good()?;
    }
    drop(plugin);
    node.start_plugin(Some(moment)).await?.unpublish().await.expect_killed_at(moment)?;

    let mut plugin = node.start_plugin(None).await?;
    // The kubelet may retry either call.
    let observed = node.visible_version()?;
    node.refuse_content();
    match (plugin.publish("2").await, observed.as_deref()) {
        (CsiCallResult::Refused(_), None) | (CsiCallResult::Good, Some("2")) => {}
        (answer, observed) => {
            let observed = observed.unwrap_or("nothing");
            return Err(format!("without its source, {observed} was called {answer}").into());
        }
    }
    node.provide_version("3");
    plugin.publish("3").await.expect_good()?;
    node.check_version("3")?;
    for _ in 0..2 {
        plugin.unpublish().await.expect_good()?;
        node.check_removed()?;
    }
    Ok(())
}

/// After a reboot, the directories exist without mounts.
async fn test_reboot(node: &CrashTestNode) -> Result<(), Failed> {
    node.provide_version("1");
    node.start_plugin(None).await?.publish("1").await.expect_good()?;
    node.reboot()?;
    let mut plugin = node.start_plugin(None).await?;
    node.refuse_content();
    plugin.publish("1").await.expect_refused()?;
    node.provide_version("2");
    plugin.publish("2").await.expect_good()?;
    node.check_version("2")?;
    drop(plugin);
    node.reboot()?;
    node.start_plugin(None).await?.unpublish().await.expect_good()?;
    node.check_removed()
}
