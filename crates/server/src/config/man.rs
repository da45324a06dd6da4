//! The man page `fernd.1` and the shell completions in `packaging/`, written from the table of
//! options. They are files of the repository, so that a package or a user copies them without
//! running anything; a test fails when one is stale.

use crate::config::parse::command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::path::PathBuf;

/// What the table does not say, in the man page's own language.
const MORE: &str = r"
.SH CONFIGURATION
The file that \fB\-\-config\fR names is YAML with \fBmongod\fR's sections, or lines of \fIkey = value\fR.
The command line wins over the file. The options of \fBmongod\fR that have no meaning here are taken with
a warning in the log; those that cannot be honoured are refused by name.
.SH SIGNALS
.TP
\fBSIGTERM\fR, \fBSIGINT\fR, \fBSIGHUP\fR
Shut down cleanly: operations are interrupted, a checkpoint is written.
.TP
\fBSIGUSR1\fR
Start a new log file.
.TP
\fBSIGUSR2\fR
Load the files of TLS again, as the command \fIrotateCertificates\fR.
.SH EXIT STATUS
.TP
\fB0\fR
A clean shutdown.
.TP
\fB2\fR
An option cannot be honoured.
.TP
\fB14\fR
An error that should not occur.
.TP
\fB48\fR
The addresses cannot be listened to.
.TP
\fB100\fR
The data directory cannot be used.
.SH FILES
.TP
\fI/etc/fernd.conf\fR
The configuration of the Debian package's service.
.TP
\fI/var/lib/fernd\fR
Its data directory.
.SH SECURITY
Without \fB\-\-auth\fR whoever can connect can read and write everything, and without \fB\-\-tlsMode\fR everything
goes in the clear. Listen only where all clients are trusted, or with both.
.SH SEE ALSO
\fBfern\fR(1)
";

fn fernd() -> clap::Command {
    command(env!("CARGO_PKG_VERSION"))
}

fn man_page() -> Vec<u8> {
    let (man, mut page) = (Man::new(fernd()), Vec::new());
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    page.extend_from_slice(MORE.trim_start().as_bytes());
    page
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut fernd(), "fernd", &mut script);
    script
}

#[test]
fn man_page_and_completions_are_fresh() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
    let files = [
        ("man/fernd.1", man_page()),
        ("completions/fernd.bash", completions(Shell::Bash)),
        ("completions/_fernd", completions(Shell::Zsh)),
        ("completions/fernd.fish", completions(Shell::Fish)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        if std::env::var("FERN_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        assert!(
            std::fs::read(&path).unwrap_or_default() == text,
            "packaging/{name} is stale: FERN_GOLDEN=write cargo test -p server completions_are_fresh"
        );
    }
}

#[test]
fn every_option_is_in_the_man_page_and_in_each_shells_completions() {
    let page = String::from_utf8(man_page()).unwrap().replace("\\-", "-");
    let scripts = [Shell::Bash, Shell::Zsh, Shell::Fish]
        .map(|shell| String::from_utf8(completions(shell)).unwrap());
    for option in crate::config::options::OPTIONS {
        // `--verbose` is for files; on the command line it is `-v`, and the help hides it.
        if option.flag == "verbose" {
            continue;
        }
        assert!(page.contains(&format!("--{}", option.flag)), "{}", option.flag);
        for script in &scripts {
            assert!(script.contains(option.flag), "{}", option.flag);
        }
    }
}
