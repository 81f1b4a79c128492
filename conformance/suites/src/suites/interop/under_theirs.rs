//! Our provider under upstream's drivers, whole lives of volumes: mounted, rotated, unmounted.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};

use super::stack::{Mounted, Stack};
use super::{Stage, chain, trial};
use crate::ground::Holder;
use crate::peers::Rotation;
use crate::volume::{NodePlugin, Volume};

/// How often the drivers rotate.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long a rotation may take.
const PATIENCE: Duration = Duration::from_secs(30);

const CREDENTIAL: [&str; 1] = ["objectName: {component}\nobjectType: secret"];

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let trial = |name: &str, run: fn(&Stage) -> Rotated<'_>| {
        let name = format!("interop::{name}_rotates_and_unmounts_what_our_provider_fills");
        trial(name, stage, async move |stage| run(stage).live().await)
    };
    vec![
        // This version rotates by itself, from the pods and pod statuses of its node.
        trial("driver_v1_5_6", |stage| Rotated {
            stage,
            name: "driver-1-5",
            program: &stage.programs.driver_1_5,
            republishes: false,
        }),
        // This one rotates when the kubelet publishes again.
        trial("driver_v1_6_0", |stage| Rotated {
            stage,
            name: "driver-1-6",
            program: &stage.programs.driver_1_6,
            republishes: true,
        }),
    ]
}

/// A volume that a driver of upstream's keeps.
struct Rotated<'a> {
    stage: &'a Stage,
    name: &'static str,
    program: &'a std::path::Path,
    republishes: bool,
}

impl Rotated<'_> {
    async fn live(&self) -> Result<(), Failed> {
        let stack = self.stage.stack(self.name)?;
        // Our provider answers rotations from what it read within its own interval.
        let _ours = stack.lanyard(Rotation::Every(INTERVAL)).await?;
        let (driver, _shared) = if self.republishes {
            (stack.upstream_driver(self.program, Rotation::Every(INTERVAL)).await?, None)
        } else {
            let (driver, shared) =
                stack.upstream_driver_in_pod(self.program, Rotation::Every(INTERVAL)).await?;
            (driver, Some(shared))
        };
        let mut volume = stack.volume(self.name, "azure", Holder::ManagedIdentity, &CREDENTIAL)?;
        stack.give_pod(&mut volume)?;
        let outcome = self.rotate(&stack, &driver.plugin, &volume).await;
        volume.clear();
        stack.take_pod(&volume)?;
        outcome
    }

    async fn rotate(
        &self,
        stack: &Stack<'_>,
        plugin: &NodePlugin,
        volume: &Volume,
    ) -> Result<(), Failed> {
        let first = stack.mount(plugin, volume).await?;
        self.stage.azure.rotate_component().await.map_err(chain)?;
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        loop {
            clock.sleep(Duration::from_millis(500)).await;
            if self.republishes {
                plugin.publish(volume).await.map_err(chain)?;
            }
            let now = stack.seen(volume)?;
            if is_newer(&first, &now) {
                break;
            }
            if clock.monotonic() > deadline {
                return Err("the volume still holds the old version".into());
            }
        }
        stack.unmount(plugin, volume).await
    }
}

/// Both the file and what the status lists are others than before.
fn is_newer(before: &Mounted, now: &Mounted) -> bool {
    before.files != now.files && before.objects != now.objects
}
