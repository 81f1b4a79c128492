//! The crash matrix: a real `lanyard node` is killed at every step of a publish, a rotation, a scrub,
//! a take-over of another driver's volume and an unpublish, on real memory file systems, and the next
//! process has to mend what it finds.
//!
//! This program is the kubelet, and another people's provider on its socket. The feature `crash-points`
//! is on in every build of `cargo xtask test`.

mod crash {
    pub(crate) mod node;
    pub(crate) mod plugin;
    pub(crate) mod source;
}

use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use crash::node::{Container, Node, Staging};
use crash::plugin::{Answer, Moment, Plugin, Start};
use lanyard_node::{Step, Work};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let ways = [(Staging::Detached, ""), (Staging::InPlace, "-in-place")];
    let mut trials = Vec::new();
    let works = ways.into_iter().flat_map(|it| Work::ALL.map(|work| (it, work)));
    let works = works.filter(|((staging, _), work)| {
        // These begin with what is mounted, however that was done.
        *staging == Staging::Detached || !matches!(work, Work::Scrub | Work::TakeOver)
    });
    for ((staging, way), work) in works {
        trials.extend(moments(work).map(|moment| {
            let name = format!("{}{way}/{moment}", name_of(work));
            trial(name, staging, async move |node| killed(node, work, moment).await)
        }));
    }
    trials.push(trial("reboot".to_owned(), Staging::Detached, reboot));
    let mut arguments = Arguments::from_args();
    arguments.include_ignored &= is_root_of_machine();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Every step, and those that are loops in the middle as well: some of the files are there then.
fn moments(work: Work) -> impl Iterator<Item = Moment> {
    let middles = match work {
        Work::Publish | Work::Rotate | Work::TakeOver => vec![Step::WriteFiles],
        Work::Scrub => vec![Step::EmptyRetired],
        Work::Unpublish => vec![Step::RemoveLinks, Step::RemoveGenerations],
    };
    let middles = middles.into_iter().map(|step| Moment { step, time: 2 });
    work.steps().map(|step| Moment { step, time: 1 }).chain(middles)
}

fn trial<F>(name: String, staging: Staging, run: F) -> Trial
where
    F: AsyncFnOnce(&Node) -> Result<(), Failed> + Send + 'static,
{
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let node = Node::new(staging)?;
            run(&node).await
        })
    });
    trial.with_ignored_flag(!is_root_of_machine())
}

/// Whether this process may mount, and the directories above its sockets belong to it. In a user
/// namespace `/` belongs to an unknown user, and the plugin trusts no provider's socket below it.
fn is_root_of_machine() -> bool {
    let owner = std::fs::metadata("/").map(|it| it.uid());
    rustix::process::geteuid().is_root() && owner.is_ok_and(|owner| owner == 0)
}

const fn name_of(work: Work) -> &'static str {
    match work {
        Work::Publish => "publish",
        Work::Rotate => "rotate",
        Work::Scrub => "scrub",
        Work::TakeOver => "take-over",
        Work::Unpublish => "unpublish",
    }
}

async fn killed(node: &Node, work: Work, moment: Moment) -> Result<(), Failed> {
    match work {
        Work::Publish => publish(node, moment).await,
        Work::Rotate => rotate(node, moment).await,
        Work::Scrub => scrub(node, moment).await,
        Work::TakeOver => take_over(node, moment).await,
        Work::Unpublish => unpublish(node, moment).await,
    }
}

async fn publish(node: &Node, moment: Moment) -> Result<(), Failed> {
    node.give("1");
    node.start(Some(moment)).await?.publish("1").await.must_be_cut_off_at(moment)?;
    let seen = node.seen()?;

    let mut plugin = node.start(None).await?;
    // The source is out of reach: only a volume that is whole may be called one.
    node.refuse();
    match (plugin.publish("1").await, seen.as_deref()) {
        (Answer::Refused(_), None) | (Answer::Good, Some("1")) => {}
        (answer, seen) => {
            let seen = seen.unwrap_or("nothing");
            return Err(format!("without its source, {seen} was called {answer}").into());
        }
    }
    node.give("1");
    plugin.publish("1").await.must_be_good()?;
    node.shows("1")?;
    node.give("2");
    plugin.publish("2").await.must_be_good()?;
    node.shows("2")?;
    plugin.unpublish().await.must_be_good()?;
    node.is_clean()
}

async fn rotate(node: &Node, moment: Moment) -> Result<(), Failed> {
    node.give("1");
    node.start(None).await?.publish("1").await.must_be_good()?;
    let container = node.container()?;

    let mut plugin = renew(node, &container, ["1", "2"], moment).await?;
    drop(container);
    plugin.unpublish().await.must_be_good()?;
    node.is_clean()
}

/// A process dies while it gives a mounted volume its second version, and the next one goes on, under
/// the running container.
async fn renew(
    node: &Node,
    container: &Container,
    [first, second]: [&str; 2],
    moment: Moment,
) -> Result<Plugin, Failed> {
    node.give(second);
    node.start(Some(moment)).await?.publish(second).await.must_be_cut_off_at(moment)?;
    let seen = node.seen()?.unwrap_or_default();
    if seen != first && seen != second {
        return Err(format!("after the crash a reader sees {seen:?}").into());
    }
    container.sees(Some(&seen))?;

    let mut plugin = node.start(None).await?;
    // A pod is running on it: whatever the source says, the volume stays.
    node.refuse();
    plugin.publish(second).await.must_be_good()?;
    node.shows(&seen)?;
    node.give("3");
    plugin.publish("3").await.must_be_good()?;
    node.shows("3")?;
    // The container goes on with the mount that it found.
    container.sees(Some("3"))?;
    Ok(plugin)
}

async fn take_over(node: &Node, moment: Moment) -> Result<(), Failed> {
    node.mount_as_upstream("0")?;
    let container = node.container()?;
    let mut plugin = renew(node, &container, ["0", "2"], moment).await?;
    node.is_hardened()?;
    drop(container);
    plugin.unpublish().await.must_be_good()?;
    node.is_clean()
}

/// Nobody asks for a scrub: it is due when a process finds what has retired, and has its time.
async fn scrub(node: &Node, moment: Moment) -> Result<(), Failed> {
    let mut plugin = node.start(None).await?;
    node.give("1");
    plugin.publish("1").await.must_be_good()?;
    let retired = node.open_files()?;
    node.give("2");
    plugin.publish("2").await.must_be_good()?;
    let (container, current) = (node.container()?, node.open_files()?);
    drop(plugin);

    let mut killed = node.launch(Some(moment), Start::AnHourLater)?;
    killed.must_end_at(moment).await?;
    let emptied = usize::try_from(moment.time)? - 1;
    if retired.emptied()? != emptied {
        let files = retired.emptied()?;
        return Err(format!("the crash left {files} emptied files, not {emptied}").into());
    }
    node.shows("2")?;

    // The next process goes on with it, and touches nothing else.
    let mut plugin = node.launch(None, Start::AnHourLater)?;
    plugin.serves().await?;
    retired.must_be_emptied().await?;
    if current.emptied()? > 0 {
        return Err("what readers see was emptied".into());
    }
    node.refuse();
    plugin.publish("2").await.must_be_good()?;
    node.shows("2")?;
    node.give("3");
    plugin.publish("3").await.must_be_good()?;
    node.shows("3")?;
    container.sees(Some("3"))?;
    drop((container, retired, current));
    plugin.unpublish().await.must_be_good()?;
    node.is_clean()
}

async fn unpublish(node: &Node, moment: Moment) -> Result<(), Failed> {
    let mut plugin = node.start(None).await?;
    for version in ["1", "2"] {
        node.give(version);
        plugin.publish(version).await.must_be_good()?;
    }
    drop(plugin);
    node.start(Some(moment)).await?.unpublish().await.must_be_cut_off_at(moment)?;

    let mut plugin = node.start(None).await?;
    // The kubelet may ask for either again.
    let seen = node.seen()?;
    node.refuse();
    match (plugin.publish("2").await, seen.as_deref()) {
        (Answer::Refused(_), None) | (Answer::Good, Some("2")) => {}
        (answer, seen) => {
            let seen = seen.unwrap_or("nothing");
            return Err(format!("without its source, {seen} was called {answer}").into());
        }
    }
    node.give("3");
    plugin.publish("3").await.must_be_good()?;
    node.shows("3")?;
    for _ in 0..2 {
        plugin.unpublish().await.must_be_good()?;
        node.is_clean()?;
    }
    Ok(())
}

/// The mounts are gone and the directories are there.
async fn reboot(node: &Node) -> Result<(), Failed> {
    node.give("1");
    node.start(None).await?.publish("1").await.must_be_good()?;
    node.reboot()?;
    let mut plugin = node.start(None).await?;
    node.refuse();
    plugin.publish("1").await.must_be_refused()?;
    node.give("2");
    plugin.publish("2").await.must_be_good()?;
    node.shows("2")?;
    drop(plugin);
    node.reboot()?;
    node.start(None).await?.unpublish().await.must_be_good()?;
    node.is_clean()
}
