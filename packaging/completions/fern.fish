# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_fern_global_optspecs
    string join \n h/help V/version
end

function __fish_fern_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_fern_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_fern_using_subcommand
    set -l cmd (__fish_fern_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c fern -n "__fish_fern_needs_command" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_needs_command" -s V -l version -d 'Print version'
complete -c fern -n "__fish_fern_needs_command" -f -a "inspect" -d 'Superblock, segments, trees and log, with sizes and ratios'
complete -c fern -n "__fish_fern_needs_command" -f -a "check" -d 'Reads every page and every log record and names what is damaged; exit status 1 then'
complete -c fern -n "__fish_fern_needs_command" -f -a "rotate-master" -d 'Wraps the data keys of an encrypted data directory with another master key. No server may run on it'
complete -c fern -n "__fish_fern_needs_command" -f -a "restore" -d 'Makes a data directory of a hot backup, with what was archived of the log since, up to a moment. No server is needed; exit status 1 where the backup is damaged'
complete -c fern -n "__fish_fern_needs_command" -f -a "bench" -d 'Runs one of the experiments against a server, or against two in turns'
complete -c fern -n "__fish_fern_needs_command" -f -a "backup" -d 'Has a running server write a hot backup, and shows how far it is'
complete -c fern -n "__fish_fern_needs_command" -f -a "stats" -d 'What a running server does, a second at a time'
complete -c fern -n "__fish_fern_needs_command" -f -a "migrate" -d 'Copies everything of a server or a dump to another server, and takes over what changes meanwhile; exit status 1 where both sides differ at the end'
complete -c fern -n "__fish_fern_needs_command" -f -a "import" -d 'Fills a collection from files of JSON, CSV, TSV or BSON; exit status 1 where documents were refused or left out'
complete -c fern -n "__fish_fern_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -l logDir -d 'Where the log is, if not in the data directory' -r -F
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -l encryptionKeyFile -d 'The master key of an encrypted directory; without it only checksums are looked at' -r -F
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -a "superblock" -d 'Both superblocks and what the newest checkpoint says'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -a "segments" -d 'Every segment: kind, place, size, tree'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -a "trees" -d 'A line for each tree'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -a "tree" -d 'The nodes, runs and leaves of one tree'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -a "log" -d 'The log\'s files and what is in it behind the checkpoint'
complete -c fern -n "__fish_fern_using_subcommand inspect; and not __fish_seen_subcommand_from superblock segments trees tree log help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from superblock" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from superblock" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from segments" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from segments" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from trees" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from trees" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from tree" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from tree" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from log" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from log" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from help" -f -a "superblock" -d 'Both superblocks and what the newest checkpoint says'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from help" -f -a "segments" -d 'Every segment: kind, place, size, tree'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from help" -f -a "trees" -d 'A line for each tree'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from help" -f -a "tree" -d 'The nodes, runs and leaves of one tree'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from help" -f -a "log" -d 'The log\'s files and what is in it behind the checkpoint'
complete -c fern -n "__fish_fern_using_subcommand inspect; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fern -n "__fish_fern_using_subcommand check" -l logDir -d 'Where the log is, if not in the data directory' -r -F
complete -c fern -n "__fish_fern_using_subcommand check" -l encryptionKeyFile -d 'The master key of an encrypted directory; without it only checksums are looked at' -r -F
complete -c fern -n "__fish_fern_using_subcommand check" -l json -d 'For programs'
complete -c fern -n "__fish_fern_using_subcommand check" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand rotate-master" -l encryptionKeyFile -d 'The master key that it has' -r -F
complete -c fern -n "__fish_fern_using_subcommand rotate-master" -l newEncryptionKeyFile -d 'The one that takes its place' -r -F
complete -c fern -n "__fish_fern_using_subcommand rotate-master" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand restore" -l base -d 'Where a backup is that an incremental one was built on, if not where it was then; for each one once' -r -F
complete -c fern -n "__fish_fern_using_subcommand restore" -l archive -d 'Where the server has archived its log (its --logArchiveDir); without it the state is that of the backup' -r -F
complete -c fern -n "__fish_fern_using_subcommand restore" -l to -d 'The moment: 2026-11-28T14:05:07Z, another offset than Z, seconds since 1970, or a cluster time as SECONDS,COUNTER; without it all that is in the archive' -r
complete -c fern -n "__fish_fern_using_subcommand restore" -l encryptionKeyFile -d 'The master key of an encrypted backup; without it only checksums are looked at' -r -F
complete -c fern -n "__fish_fern_using_subcommand restore" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand bench" -l uri -d 'The server, as a connection string' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l username -d 'Log in as this user; the password is asked for, or is the first line of a standard input that is no terminal' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l authenticationDatabase -d 'The database that the user was created in' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l vs -d 'A second server that gets the same work, in turns; ratios are printed' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l vs-pid -d 'The second server\'s process on this machine, where its status tells neither CPU nor memory' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l docs -d 'Documents: of the collection that is read, or inserted at most. Without: what suits a minute' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l seconds -d 'Seconds measured, on each server; loading comes on top. Without: 60, of all curves 240' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l warm-up -d 'Seconds of each timed phase before its evenness is judged; its rate counts them' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l rest -d 'Seconds without work behind each load, in which a server may put its data in order; what it does then is counted nowhere' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l clients -d 'Clients that work at once. Several numbers with commas share the seconds' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l seed -d 'Where data and schedule come from' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l out -d 'Write report.html, report.json, seconds.csv and pictures into this directory' -r -F
complete -c fern -n "__fish_fern_using_subcommand bench" -l batch -d 'Documents in one insert or update command' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l payload -d 'iibench: bytes of one more field, `cf1`' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l compressible -d 'iibench: how many percent of `cf1` compress to nothing' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l queries -d 'iibench: clients that query while others insert' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l only -d 'curves: only these, with commas' -r -f -a "connections\t'Clients that work at once, each on a connection of its own'
collections\t'Collections, each with an index'
indexes\t'Indexes of a collection beside that of `_id`'
size\t'Bytes of a document'
snapshots\t'Snapshots that transactions hold open'
history\t'Versions of each document that an open snapshot keeps'
data\t'Bytes of documents, as multiples of the server\'s cache'"
complete -c fern -n "__fish_fern_using_subcommand bench" -l slice -d 'Seconds of a turn with `--vs`' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l rounds -d 'points: each operation is measured so often, in turns with all others, within the same seconds; the table has the medians, the ratios to a second server those of the rounds, with the least and the most' -r
complete -c fern -n "__fish_fern_using_subcommand bench" -l quick -d 'curves: the small points alone, a fraction of a second each: whether it works at all'
complete -c fern -n "__fish_fern_using_subcommand bench" -l keep -d 'Leave the data on the server'
complete -c fern -n "__fish_fern_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fern -n "__fish_fern_using_subcommand backup" -l username -d 'Log in as this user; the password is asked for, or is the first line of a standard input that is no terminal' -r
complete -c fern -n "__fish_fern_using_subcommand backup" -l authenticationDatabase -d 'The database that the user was created in' -r
complete -c fern -n "__fish_fern_using_subcommand backup" -l throttle -d 'Bytes a second that backups may copy from now on, as 10MB; 0 for as fast as it goes' -r
complete -c fern -n "__fish_fern_using_subcommand backup" -l since -d 'An earlier backup on the server\'s machine, below its --backupRoot: only what that one does not have is written. `fern restore` puts both together' -r
complete -c fern -n "__fish_fern_using_subcommand backup" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand stats" -l username -d 'Log in as this user; the password is asked for, or is the first line of a standard input that is no terminal' -r
complete -c fern -n "__fish_fern_using_subcommand stats" -l authenticationDatabase -d 'The database that the user was created in' -r
complete -c fern -n "__fish_fern_using_subcommand stats" -l back -d 'How far the pictures reach back, in seconds' -r
complete -c fern -n "__fish_fern_using_subcommand stats" -l seconds -d 'End after so many seconds' -r
complete -c fern -n "__fish_fern_using_subcommand stats" -l lines -d 'A line a second, as `mongostat` writes them; by itself where the output is no terminal'
complete -c fern -n "__fish_fern_using_subcommand stats" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand migrate" -l sourceUsername -d 'Log in to the source as this user; the password is asked for, or is a line of a standard input that is no terminal' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l sourceAuthenticationDatabase -d 'The database that the source\'s user was created in' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l targetUsername -d 'Log in to the target as this user; the password is asked for after the source\'s' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l targetAuthenticationDatabase -d 'The database that the target\'s user was created in' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l include -d 'Only collections whose name this pattern fits, as shop.* or shop.orders; may be given several times' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l exclude -d 'No collection whose name this pattern fits; may be given several times' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l untilQuiet -d 'With --follow: end, too, once nothing has changed for so many seconds' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l verify -d 'Compare both sides at the end, document by document' -r -f -a "true\t''
false\t''"
complete -c fern -n "__fish_fern_using_subcommand migrate" -l parallel -d 'Readers and writers at a time' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l throttle -d 'Bytes a second that are copied at most, as 10MB; 0 for as fast as it goes' -r
complete -c fern -n "__fish_fern_using_subcommand migrate" -l state -d 'The file that tells how far it is, from which a second call goes on; by default one in the working directory, named by source and target' -r -F
complete -c fern -n "__fish_fern_using_subcommand migrate" -l report -d 'Write what was compared and what was not taken over to a file, as JSON' -r -F
complete -c fern -n "__fish_fern_using_subcommand migrate" -l intoExisting -d 'Copy into collections that the target has already; a document with the same _id is replaced'
complete -c fern -n "__fish_fern_using_subcommand migrate" -l users -d 'Users and roles, too, with what stands for their passwords'
complete -c fern -n "__fish_fern_using_subcommand migrate" -l follow -d 'Go on taking over what changes, until Ctrl-C (SIGINT) or SIGTERM; then take over the rest, compare and end'
complete -c fern -n "__fish_fern_using_subcommand migrate" -l oldProtocol -d 'Speak to the source only by the messages from before OP_MSG, as to a server that knows no others'
complete -c fern -n "__fish_fern_using_subcommand migrate" -s h -l help -d 'Print help'
complete -c fern -n "__fish_fern_using_subcommand import" -l username -d 'Log in as this user; the password is asked for, or is the first line of a standard input that is no terminal' -r
complete -c fern -n "__fish_fern_using_subcommand import" -l authenticationDatabase -d 'The database that the user was created in' -r
complete -c fern -n "__fish_fern_using_subcommand import" -l type -d 'What the files are, where their names do not tell by .json, .jsonl, .ndjson, .csv, .tsv or .bson' -r -f -a "json\t'Documents of Extended JSON, one behind the other, or an array of them'
csv\t'A table with commas'
tsv\t'A table with tabs'
bson\t'Documents as `mongodump` writes them'"
complete -c fern -n "__fish_fern_using_subcommand import" -l index -d 'An index of a new collection, as \'{"customer": 1}\', or \'{"key": {"customer": 1}, "unique": true}\' with any of the options of createIndexes; may be given several times' -r
complete -c fern -n "__fish_fern_using_subcommand import" -l primaryKey -d 'What a new collection is clustered by, as \'{"site": 1, "_id": 1}\'' -r
complete -c fern -n "__fish_fern_using_subcommand import" -l gzip -d 'The files are compressed by gzip, whatever their names are; without it those are that end in .gz'
complete -c fern -n "__fish_fern_using_subcommand import" -l drop -d 'Drop the collection first, if it is there'
complete -c fern -n "__fish_fern_using_subcommand import" -l noLoad -d 'Insert documents as any client does, also where the collection is new'
complete -c fern -n "__fish_fern_using_subcommand import" -l skipInvalid -d 'Leave out what is no document, and count it; without it the first one ends the import'
complete -c fern -n "__fish_fern_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "inspect" -d 'Superblock, segments, trees and log, with sizes and ratios'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "check" -d 'Reads every page and every log record and names what is damaged; exit status 1 then'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "rotate-master" -d 'Wraps the data keys of an encrypted data directory with another master key. No server may run on it'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "restore" -d 'Makes a data directory of a hot backup, with what was archived of the log since, up to a moment. No server is needed; exit status 1 where the backup is damaged'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "bench" -d 'Runs one of the experiments against a server, or against two in turns'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "backup" -d 'Has a running server write a hot backup, and shows how far it is'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "stats" -d 'What a running server does, a second at a time'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "migrate" -d 'Copies everything of a server or a dump to another server, and takes over what changes meanwhile; exit status 1 where both sides differ at the end'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "import" -d 'Fills a collection from files of JSON, CSV, TSV or BSON; exit status 1 where documents were refused or left out'
complete -c fern -n "__fish_fern_using_subcommand help; and not __fish_seen_subcommand_from inspect check rotate-master restore bench backup stats migrate import help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fern -n "__fish_fern_using_subcommand help; and __fish_seen_subcommand_from inspect" -f -a "superblock" -d 'Both superblocks and what the newest checkpoint says'
complete -c fern -n "__fish_fern_using_subcommand help; and __fish_seen_subcommand_from inspect" -f -a "segments" -d 'Every segment: kind, place, size, tree'
complete -c fern -n "__fish_fern_using_subcommand help; and __fish_seen_subcommand_from inspect" -f -a "trees" -d 'A line for each tree'
complete -c fern -n "__fish_fern_using_subcommand help; and __fish_seen_subcommand_from inspect" -f -a "tree" -d 'The nodes, runs and leaves of one tree'
complete -c fern -n "__fish_fern_using_subcommand help; and __fish_seen_subcommand_from inspect" -f -a "log" -d 'The log\'s files and what is in it behind the checkpoint'
