complete -c fernd -s f -l config -d 'configuration file: YAML, or key = value lines' -r
complete -c fernd -l dbpath -d 'data directory (default: ./fern-data, made if missing)' -r
complete -c fernd -l backupRoot -d 'backupStart writes into directories below this one; without it, nowhere' -r
complete -c fernd -l port -d 'port to listen on (default: 27017)' -r
complete -c fernd -l bind_ip -d 'addresses or names to listen at, with commas (default: localhost)' -r
complete -c fernd -l bind_ip_all -d 'listen at every address' -r
complete -c fernd -l ipv6 -d 'listen at IPv6 addresses too' -r
complete -c fernd -l maxConns -d 'connections at most (default: 65536, or what open files allow)' -r
complete -c fernd -l maxIncomingConnectionsOverride -d 'addresses and ranges, with commas, whose connections are let in beyond maxConns, as far as open files allow' -r
complete -c fernd -l nounixsocket -d 'no Unix domain socket' -r
complete -c fernd -l unixSocketPrefix -d 'directory of the Unix domain socket (default: /tmp)' -r
complete -c fernd -l filePermissions -d 'octal permissions of the socket file (default: 0700)' -r
complete -c fernd -l statusPort -d 'port of the status page and /metrics, 0: none (default: 28017)' -r
complete -c fernd -l statusBindIp -d 'addresses the status port listens at, with commas (default: 127.0.0.1)' -r
complete -c fernd -l statusTokenFile -d 'file of a bearer token by which /metrics is read without a user' -r
complete -c fernd -l statusShowValues -d 'who sees what clients sent: local (this machine), always, never (default: local)' -r
complete -c fernd -l logpath -d 'write the log to this file, not to standard output' -r
complete -c fernd -l logappend -d 'go on at the end of an old log file' -r
complete -c fernd -l quiet -d 'do not log connections' -r
complete -c fernd -l verbose -d 'log more; -vv still more' -r
complete -c fernd -l slowms -d 'log operations slower than this (default: 100)' -r
complete -c fernd -l profile -d 'what every database\'s system.profile has: 0 or off, 1 or slowOp, 2 or all (default: off)' -r
complete -c fernd -l fork -d 'go to the background; needs --logpath' -r
complete -c fernd -l pidfilepath -d 'write the process number to this file' -r
complete -c fernd -l keyFile -d 'the key that the members of the replica set share, in a file; implies --auth' -r
complete -c fernd -l clusterAuthMode -d 'how members log in to each other: keyFile, sendKeyFile, sendX509 or x509' -r
complete -c fernd -l clusterIpSourceAllowlist -d 'addresses and ranges from which members of the set may log in, with commas' -r
complete -c fernd -l clusterIpSourceWhitelist -d 'the old name of clusterIpSourceAllowlist' -r
complete -c fernd -l auth -d 'ask clients who they are, and let them do what they may' -r
complete -c fernd -l noauth -d 'ask nobody who he is, which is the default' -r
complete -c fernd -l transitionToAuth -d 'check who logs in, and let everybody do everything still' -r
complete -c fernd -l auditDestination -d 'tell who did what: file, console, syslog' -r
complete -c fernd -l auditFormat -d 'JSON, which is the default, or BSON' -r
complete -c fernd -l auditPath -d 'the file; auditLog.json in the data directory, if none is named. With syslog the socket; /dev/log, if none is named' -r
complete -c fernd -l auditFilter -d 'tell only what this query matches' -r
complete -c fernd -l enableEncryption -d 'encrypt what is stored, from an empty data directory on' -r
complete -c fernd -l encryptionKeyFile -d 'the master key: the base64 of 32 bytes, in a file' -r
complete -c fernd -l encryptionKeyCommand -d 'a program that prints the master key, run at the start without a shell: its whole path, and arguments between spaces' -r
complete -c fernd -l encryptionCipherMode -d 'AES256-GCM, which is the default and the only one' -r
complete -c fernd -l relaxPermChecks -d 'the group of a key file that belongs to root may read it' -r
complete -c fernd -l tlsMode -d 'who speaks TLS: disabled, allowTLS, preferTLS or requireTLS (default: disabled)' -r
complete -c fernd -l tlsCertificateKeyFile -d 'the server\'s certificate and its key, in one PEM file' -r
complete -c fernd -l tlsCertificateKeyFilePassword -d 'what the key is encrypted with' -r
complete -c fernd -l tlsClusterFile -d 'what is shown to other members, if not that of tlsCertificateKeyFile: a certificate and its key' -r
complete -c fernd -l tlsClusterPassword -d 'what that key is encrypted with' -r
complete -c fernd -l tlsCAFile -d 'certificates that those of clients and members have to come from; clients have to show one' -r
complete -c fernd -l tlsClusterCAFile -d 'certificates that those of clients have to come from, if not those of tlsCAFile' -r
complete -c fernd -l tlsCRLFile -d 'revoked certificates, as PEM' -r
complete -c fernd -l tlsAllowConnectionsWithoutCertificates -d 'let in clients that show no certificate, too' -r
complete -c fernd -l tlsAllowInvalidCertificates -d 'let in clients whose certificate is not good, as nobody, and take any of a member' -r
complete -c fernd -l tlsAllowInvalidHostnames -d 'take a member\'s certificate that is of another host' -r
complete -c fernd -l tlsDisabledProtocols -d 'versions that are not spoken, with commas: TLS1_2 or TLS1_3' -r
complete -c fernd -l tlsCipherConfig -d 'cipher suites of TLS 1.2 that are spoken, with colons; also the parameter opensslCipherConfig' -r
complete -c fernd -l tlsClusterAuthX509Attributes -d 'attributes of the subject by which a certificate is a member\'s, such as O=Example,OU=Members' -r
complete -c fernd -l tlsClusterAuthX509ExtensionValue -d 'the text in the extension 1.3.6.1.4.1.34601.2.1.2 by which a certificate is a member\'s' -r
complete -c fernd -l tlsLogVersions -d 'log each connection of these versions, with commas: TLS1_2 or TLS1_3' -r
complete -c fernd -l tlsOnNormalPorts -d 'the same as tlsMode=requireTLS' -r
complete -c fernd -l sslMode -d 'the old name of tlsMode' -r
complete -c fernd -l sslPEMKeyFile -d 'the old name of tlsCertificateKeyFile' -r
complete -c fernd -l sslPEMKeyPassword -d 'the old name of tlsCertificateKeyFilePassword' -r
complete -c fernd -l sslClusterFile -d 'the old name of tlsClusterFile' -r
complete -c fernd -l sslClusterPassword -d 'the old name of tlsClusterPassword' -r
complete -c fernd -l sslClusterCAFile -d 'the old name of tlsClusterCAFile' -r
complete -c fernd -l sslCAFile -d 'the old name of tlsCAFile' -r
complete -c fernd -l sslCRLFile -d 'the old name of tlsCRLFile' -r
complete -c fernd -l sslAllowConnectionsWithoutCertificates -d 'the old name of tlsAllowConnectionsWithoutCertificates' -r
complete -c fernd -l sslAllowInvalidCertificates -d 'the old name of tlsAllowInvalidCertificates' -r
complete -c fernd -l sslAllowInvalidHostnames -d 'the old name of tlsAllowInvalidHostnames' -r
complete -c fernd -l sslDisabledProtocols -d 'the old name of tlsDisabledProtocols' -r
complete -c fernd -l sslCipherConfig -d 'the old name of tlsCipherConfig' -r
complete -c fernd -l sslOnNormalPorts -d 'the old name of tlsOnNormalPorts' -r
complete -c fernd -l noscripting -d 'run no JavaScript of clients' -r
complete -c fernd -l redactClientLogData -d 'show ### in the log in place of what clients\' documents hold' -r
complete -c fernd -l setParameter -d 'name=value; a server parameter at start' -r
complete -c fernd -l replSet -d 'be a member of the replica set of this name' -r
complete -c fernd -l replset -d 'the same as replSet' -r
complete -c fernd -l replSetAutoInitiate -d 'initiate the replica set at the first start, without replSetInitiate' -r
complete -c fernd -l oplogSize -d 'megabytes of oplog that a member of a set keeps (default: a twentieth of the free disk, from 990 to 51200, and at most an eighth of the disk)' -r
complete -c fernd -l oplogMinRetentionHours -d 'hours that the oplog of a member reaches back at least, also where it is longer than oplogSize (default: 0)' -r
complete -c fernd -l expireOplogDays -d 'days, with expireOplogHours, after which the oplog goes; oplogSize is kept nevertheless, where it is given' -r
complete -c fernd -l expireOplogHours -d 'hours on top of expireOplogDays; alone they are no days' -r
complete -c fernd -l cacheSize -d 'memory for the engine, with k, m, g or t (default: half of the machine\'s)' -r
complete -c fernd -l directio -d 'bypass the page cache of the system' -r
complete -c fernd -l compressLog -d 'compress records of the log from 4 KiB on (default: on)' -r
complete -c fernd -l wiredTigerJournalCompressor -d 'for a mongod configuration: none is compressLog off, snappy, zlib and zstd are on' -r
complete -c fernd -l checkpointPeriod -d 'seconds between checkpoints, 0: never (default: 60)' -r
complete -c fernd -l cleanerPeriod -d 'seconds between cleaner runs, 0: never (default: 2)' -r
complete -c fernd -l cleanerIterations -d 'nodes per cleaner run (default: 5)' -r
complete -c fernd -l logFlushPeriod -d 'milliseconds between log flushes, 0: at every commit (default: 100)' -r
complete -c fernd -l journalCommitInterval -d 'the same as logFlushPeriod' -r
complete -c fernd -l lockTimeout -d 'milliseconds to wait for a lock (default: 4000)' -r
complete -c fernd -l locktreeMaxMemory -d 'memory for locks (default: a tenth of cacheSize)' -r
complete -c fernd -l fsRedzone -d 'percent of the disk to keep free; below it writes are refused (default: 5)' -r
complete -c fernd -l logDir -d 'directory of the redo log (default: journal in dbpath)' -r
complete -c fernd -l logArchiveDir -d 'the redo log is archived into this directory, outside of dbpath, for fern restore; without it, nowhere' -r
complete -c fernd -l tmpDir -d 'directory for spilled data (default: tmp in dbpath)' -r
complete -c fernd -l loaderCompressTmp -d 'what bulk loads and index builds cannot sort in memory is compressed on its way (default: on)' -r
complete -c fernd -l loaderMaxMemory -d 'memory in which bulk loads and index builds sort, 32M at least, a quarter of cacheSize at most (default: 100M)' -r
complete -c fernd -l txnMemLimit -d 'the parameter of this name, which nothing goes by: transactions have no such limit' -r
complete -c fernd -l wiredTigerCacheSizeGB -d 'cacheSize in gigabytes, for a mongod configuration' -r
complete -c fernd -s v -d 'log more; -vv still more'
complete -c fernd -s h -l help -d 'Print help'
complete -c fernd -s V -l version -d 'Print version'
