//! Tests that one tenant cannot exhaust the memory of the node plugin: a real `lanyard node` in a container
//! with 128 MiB, with a scripted vault.
//!
//! This program acts as the kubelet and as the vault. It needs root and a writable memory cgroup; otherwise
//! its tests are reported as ignored.

mod memory {
    pub(crate) mod cgroup;
    pub(crate) mod kubelet;
    pub(crate) mod vault;
}

use std::process::ExitCode;
use std::time::Duration;

use lanyard_clock::SystemClock;
use libtest_mimic::{Arguments, Failed, Trial};
use memory::cgroup::MemoryCgroup;
use memory::kubelet::MemoryTestNode;

fn main() -> ExitCode {
    let can_limit = MemoryCgroup::is_available();
    let mut arguments = Arguments::from_args();
    // A user namespace provides root but no cgroup, and `cargo xtask test` includes ignored tests wherever it
    // has root.
    arguments.include_ignored &= can_limit;
    let trial = |name: &str, classes: Vec<MemoryTestClass>, most: u64| {
        let trial = Trial::test(name, move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(test_limits(classes, most))
        });
        trial.with_ignored_flag(!can_limit)
    };
    let trials = vec![
        trial(
            "volumes_of_1300_large_secrets_are_refused_and_all_others_go_on",
            (0..4).map(class_with_many_secrets).collect(),
            VOLUMES_LIMIT + PROCESS_LIMIT,
        ),
        trial(
            "one_large_secret_in_430_entries_is_refused_and_all_others_go_on",
            (0..24).map(class_with_many_entries).collect(),
            // Less than two decoded volumes.
            PROCESS_LIMIT,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The name of a class, its vault and its entries.
pub(crate) struct MemoryTestClass {
    pub(crate) name: String,
    pub(crate) vault: String,
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) history: u32,
}

/// 1,299 secrets of 25 KB; each class has its own vault.
fn class_with_many_secrets(number: usize) -> MemoryTestClass {
    let entry = |entry: usize| (format!("large-{entry}"), format!("f{entry}"));
    MemoryTestClass {
        name: format!("hostile-{number}"),
        vault: format!("hostile-{number}"),
        entries: (0..433).map(entry).collect(),
        history: 3,
    }
}

/// Three versions of one secret of 25 KB, each 430 times.
fn class_with_many_entries(number: usize) -> MemoryTestClass {
    let entry = |entry: usize| ("large".to_owned(), format!("f{entry}"));
    MemoryTestClass {
        name: format!("hostile-{number}"),
        vault: "hostile".to_owned(),
        entries: (0..430).map(entry).collect(),
        history: 3,
    }
}

fn small_class() -> MemoryTestClass {
    let entries = ["one", "two"].map(|name| (name.to_owned(), name.to_owned()));
    MemoryTestClass {
        name: "calm".to_owned(),
        vault: "calm".to_owned(),
        entries: entries.into(),
        history: 0,
    }
}

/// How often the kubelet tries each pod of the tenant.
const ATTEMPTS: usize = 3;
/// The time within which another pod starts and a mounted volume follows its vault, on a busy machine.
const REACTION_TIME: Duration = Duration::from_secs(30);

/// Starts one pod for each of these classes, while others start and rotate. The process may use at most
/// `most` bytes.
async fn test_limits(mut classes: Vec<MemoryTestClass>, most: u64) -> Result<(), Failed> {
    let hostile = classes.len();
    classes.push(small_class());
    let node = MemoryTestNode::start(&classes, MemoryCgroup::new(CONTAINER_LIMIT)?).await?;
    node.publish("mounted", "calm").await?;
    node.check_version("mounted", 1)?;

    let attack = publish_hostile_pods(&node, hostile);
    let others = async {
        let mut started = 0_u32;
        loop {
            started += 1;
            let pod = format!("other-{started}");
            with_timeout(REACTION_TIME, node.publish(&pod, "calm")).await??;
            let version = node.vault.write_small_secrets();
            with_timeout(REACTION_TIME, node.wait_for_version("mounted", version)).await??;
        }
    };
    let mut peak = 0;
    let watch = async {
        loop {
            peak = node.cgroup.charged_bytes()?.max(peak);
            SystemClock::shared().sleep(SAMPLE_INTERVAL).await;
        }
    };
    let refused = tokio::select! {
        refused = attack => refused?,
        others = others => { let ended: Result<(), Failed> = others; return ended; }
        watched = watch => { let ended: Result<(), Failed> = watched; return ended; }
    };
    for message in &refused {
        if !message.contains("VolumeMemoryExhausted") {
            return Err(format!("refused with another outcome: {message}").into());
        }
    }
    let is_final = |message: &&String| message.contains("does not recover");
    if !refused.iter().any(|message| is_final(&message)) {
        return Err(format!("no message says that it does not recover: {refused:?}").into());
    }
    // The node works as before.
    let version = node.vault.write_small_secrets();
    with_timeout(REACTION_TIME, node.wait_for_version("mounted", version)).await??;
    with_timeout(REACTION_TIME, node.publish("last", "calm")).await??;
    node.check_alive()?;
    if peak <= most {
        Ok(())
    } else {
        Err(format!("the process used {peak} bytes, more than {most}").into())
    }
}

/// Publishes every hostile pod several times, all concurrently. Returns the error messages.
async fn publish_hostile_pods(
    node: &MemoryTestNode,
    hostile: usize,
) -> Result<Vec<String>, Failed> {
    let mut tries = tokio::task::JoinSet::new();
    for number in 0..hostile {
        let kubelet = node.kubelet();
        tries.spawn(async move {
            let mut refused = Vec::new();
            for _ in 0..ATTEMPTS {
                let pod = format!("hostile-{number}");
                match kubelet.publish(&pod, &pod).await {
                    Ok(()) => return Err("a volume was mounted that can never rotate".to_owned()),
                    Err(status) => refused.push(status.to_string()),
                }
            }
            Ok(refused)
        });
    }
    let mut refused = Vec::new();
    while let Some(tried) = tries.join_next().await {
        refused.extend(tried??);
    }
    node.check_alive()?;
    Ok(refused)
}

async fn with_timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Failed> {
    tokio::select! {
        done = work => Ok(done),
        () = SystemClock::shared().sleep(limit) => {
            Err(format!("not done after {} s", limit.as_secs()).into())
        }
    }
}

/// How often the memory usage of the process is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// The limit of the volumes and of content that is read for them: half of the container's limit.
const VOLUMES_LIMIT: u64 = CONTAINER_LIMIT / 2;
/// The limit for the process's own memory in an unoptimized build.
const PROCESS_LIMIT: u64 = 48 * 1024 * 1024;
/// The limit that the chart sets.
const CONTAINER_LIMIT: u64 = 128 * 1024 * 1024;
