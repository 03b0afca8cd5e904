//! Checkpoints and the removal of old files, on a thread of their own so that no write waits for them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::state::State;
use super::{Shared, checkpoint, files};
use crate::Revision;

pub(super) struct Housekeeper {
    jobs: Option<Sender<Job>>,
    finished: Receiver<Option<Revision>>,
    busy: bool,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    Checkpoint(Box<State>),
    Remove(Vec<PathBuf>),
}

impl Housekeeper {
    pub(super) fn start(dir: PathBuf, shared: Arc<Shared>) -> io::Result<Housekeeper> {
        let (jobs, todo) = channel();
        let (done, finished) = channel();
        let thread = std::thread::Builder::new().name("store-files".to_owned()).spawn(move || {
            for job in todo {
                match job {
                    Job::Remove(paths) => remove(&paths),
                    Job::Checkpoint(state) => {
                        let revision = state.revision;
                        let path = files::checkpoint_path(&dir, revision);
                        let written = checkpoint::write(&path, &state, &shared.closing);
                        drop(state);
                        if let Err(error) = &written {
                            tracing::warn!(file = %path.display(), %error, "cannot write checkpoint; log not compacted");
                        }
                        // The writer may be gone when the store closes.
                        let _ = done.send(written.is_ok().then_some(revision));
                        shared.queue.wake();
                    }
                }
            }
        })?;
        Ok(Housekeeper { jobs: Some(jobs), finished, busy: false, thread: Some(thread) })
    }

    pub(super) fn busy(&self) -> bool {
        self.busy
    }

    pub(super) fn checkpoint(&mut self, state: State) {
        self.busy = true;
        self.send(Job::Checkpoint(Box::new(state)));
    }

    pub(super) fn remove(&mut self, paths: Vec<PathBuf>) {
        self.send(Job::Remove(paths));
    }

    /// The revision of a checkpoint that has been written since the last question.
    pub(super) fn take_finished(&mut self) -> Option<Revision> {
        let finished = self.finished.try_recv().ok()?;
        self.busy = false;
        finished
    }

    /// Waits until all is done. A checkpoint under way is given up when the store is closing.
    pub(super) fn finish(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("checkpoint thread of the store panicked");
        }
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs
            && jobs.send(job).is_err()
        {
            tracing::error!("checkpoint thread of the store is gone; log not compacted any more");
        }
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.finish();
    }
}

pub(super) fn remove(paths: &[PathBuf]) {
    for path in paths {
        if let Err(error) = std::fs::remove_file(path) {
            // It is tried again after the next start; until then it only takes room.
            tracing::warn!(file = %path.display(), %error, "cannot remove old file of the store");
        }
    }
}
