//! What programs have done to the process that has started them: the kernel keeps them from doing it themselves.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::thread::JoinHandle;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::make_pipe;

/// Defines `order NAME` for a shell program in the folder: it returns when that was done.
pub(crate) const ORDER: &str = "order() { echo $1 $PPID > orders; read done < obeyed; }; ";

/// Takes the orders of the programs in a folder until it is dropped: lines of the pipe `orders`, each a name and a process id.
pub(crate) struct Orders {
    pipe: File,
    taking: Option<JoinHandle<()>>,
}

impl Orders {
    pub(crate) fn taken_in(folder: impl AsRef<Path>) -> Self {
        // Open for both, so that opening does not wait and reading does not end.
        let both = |name| {
            let pipe = folder.as_ref().join(name);
            make_pipe(&pipe);
            File::options().read(true).write(true).open(pipe).unwrap()
        };
        let (orders, mut obeyed) = (both("orders"), both("obeyed"));
        let pipe = orders.try_clone().unwrap();
        let taking = std::thread::spawn(move || {
            for line in BufReader::new(orders).lines() {
                let line = line.unwrap();
                let Some((name, number)) = line.split_once(' ') else { return };
                obey(name, Pid::from_raw(number.parse().unwrap()).unwrap());
                obeyed.write_all(b"done\n").unwrap();
            }
        });
        Self { pipe, taking: Some(taking) }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.pipe.write_all(b"end\n").unwrap();
        self.taking.take().unwrap().join().unwrap();
    }
}

fn obey(name: &str, process: Pid) {
    let smallest = Rlimit { current: Some(1), maximum: Some(1) };
    match name {
        "interrupt" => kill_process(process, Signal::INT).unwrap(),
        "kill" => kill_process(process, Signal::KILL).unwrap(),
        "fill" => drop(prlimit(Some(process), Resource::Fsize, smallest).unwrap()),
        _ => panic!("{name}"),
    }
}
