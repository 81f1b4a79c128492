//! The crash matrix: a process that publishes is killed at every step of every work, on real
//! memory file systems, and the next process has to mend what it finds.
//!
//! The process is this program itself, started as a child, with the publisher of the node plugin
//! and a provider that gives what it is told to. Feature `crash-points`.

mod crash {
    pub(crate) mod child;
    pub(crate) mod node;
}

use std::process::ExitCode;

use crash::child;
use crash::node::{Ended, Node, Request, Staging};
use lanyard_node::{Step, Work};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> Result<ExitCode, Failed> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(child::NAME) {
        return child::main(arguments);
    }
    if !rustix::process::geteuid().is_root() {
        return Err("the crash matrix mounts memory file systems: run it as root".into());
    }
    let steps = Work::ALL.into_iter().flat_map(|work| work.steps().map(move |step| (work, step)));
    let mut trials: Vec<_> = steps
        .map(|(work, step)| {
            let name = format!("{}/{step}", name_of(work));
            Trial::test(name, move || trial(work, step, Staging::Detached))
        })
        .collect();
    // Where a kernel cannot fill a volume before it is mounted, only the first publish is another.
    trials.extend(Work::Publish.steps().map(|step| {
        let name = format!("publish-in-place/{step}");
        Trial::test(name, move || trial(Work::Publish, step, Staging::InPlace))
    }));
    trials.push(Trial::test("reboot", reboot));
    Ok(libtest_mimic::run(&Arguments::from_args(), trials).exit_code())
}

const fn name_of(work: Work) -> &'static str {
    match work {
        Work::Publish => "publish",
        Work::Rotate => "rotate",
        Work::Unpublish => "unpublish",
    }
}

fn trial(work: Work, step: Step, staging: Staging) -> Result<(), Failed> {
    let node = Node::new(staging)?;
    match work {
        Work::Publish => publish(&node, step),
        Work::Rotate => rotate(&node, step),
        Work::Unpublish => unpublish(&node, step),
    }
}

fn publish(node: &Node, step: Step) -> Result<(), Failed> {
    node.expect(Request::publish("1").crashing_at(step), Ended::Killed)?;
    let seen = node.seen()?;
    // The source is out of reach: only a volume that is whole may be called one.
    let ended = node.run(&Request::publish("fail"))?;
    match (ended, seen.as_deref()) {
        (Ended::Refused, None) | (Ended::Done, Some("1")) => {}
        other => return Err(format!("without its source, the volume was {other:?}").into()),
    }
    node.expect(Request::publish("1"), Ended::Done)?;
    node.shows("1")?;
    node.expect(Request::publish("2"), Ended::Done)?;
    node.shows("2")?;
    node.expect(Request::unpublish(), Ended::Done)?;
    node.is_clean()
}

fn rotate(node: &Node, step: Step) -> Result<(), Failed> {
    node.expect(Request::publish("1"), Ended::Done)?;
    let reader = node.reader()?;
    node.expect(Request::publish("2").crashing_at(step), Ended::Killed)?;
    let seen = node.seen()?;
    if !matches!(seen.as_deref(), Some("1" | "2")) {
        return Err(format!("after the crash a reader sees {seen:?}").into());
    }
    reader.sees(seen.as_deref())?;
    // A pod is running on it: whatever the source says, the volume stays.
    node.expect(Request::publish("fail"), Ended::Done)?;
    node.shows(seen.as_deref().unwrap_or_default())?;
    node.expect(Request::publish("2"), Ended::Done)?;
    node.shows("2")?;
    // The container goes on with the mount that it found.
    reader.sees(Some("2"))?;
    drop(reader);
    node.expect(Request::unpublish(), Ended::Done)?;
    node.is_clean()
}

fn unpublish(node: &Node, step: Step) -> Result<(), Failed> {
    node.expect(Request::publish("1"), Ended::Done)?;
    node.expect(Request::publish("2"), Ended::Done)?;
    node.expect(Request::unpublish().crashing_at(step), Ended::Killed)?;
    // The kubelet may ask for either again.
    let seen = node.seen()?;
    let ended = node.run(&Request::publish("fail"))?;
    match (ended, seen.as_deref()) {
        (Ended::Refused, None) | (Ended::Done, Some("2")) => {}
        other => return Err(format!("without its source, the volume was {other:?}").into()),
    }
    node.expect(Request::publish("3"), Ended::Done)?;
    node.shows("3")?;
    node.expect(Request::unpublish(), Ended::Done)?;
    node.is_clean()?;
    node.expect(Request::unpublish(), Ended::Done)?;
    node.is_clean()
}

fn reboot() -> Result<(), Failed> {
    let node = Node::new(Staging::Detached)?;
    node.expect(Request::publish("1"), Ended::Done)?;
    node.reboot()?;
    node.expect(Request::publish("fail"), Ended::Refused)?;
    node.expect(Request::publish("2"), Ended::Done)?;
    node.shows("2")?;
    node.reboot()?;
    node.expect(Request::unpublish(), Ended::Done)?;
    node.is_clean()
}
