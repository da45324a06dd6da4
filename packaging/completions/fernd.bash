_fernd() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="fernd"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        fernd)
            opts="-v -f -h -V --config --dbpath --backupRoot --port --bind_ip --bind_ip_all --ipv6 --maxConns --maxIncomingConnectionsOverride --nounixsocket --unixSocketPrefix --filePermissions --statusPort --statusBindIp --statusTokenFile --statusShowValues --logpath --logappend --quiet --verbose --slowms --profile --fork --pidfilepath --keyFile --clusterAuthMode --clusterIpSourceAllowlist --clusterIpSourceWhitelist --auth --noauth --transitionToAuth --auditDestination --auditFormat --auditPath --auditFilter --enableEncryption --encryptionKeyFile --encryptionKeyCommand --encryptionCipherMode --relaxPermChecks --tlsMode --tlsCertificateKeyFile --tlsCertificateKeyFilePassword --tlsClusterFile --tlsClusterPassword --tlsCAFile --tlsClusterCAFile --tlsCRLFile --tlsAllowConnectionsWithoutCertificates --tlsAllowInvalidCertificates --tlsAllowInvalidHostnames --tlsDisabledProtocols --tlsCipherConfig --tlsClusterAuthX509Attributes --tlsClusterAuthX509ExtensionValue --tlsLogVersions --tlsOnNormalPorts --sslMode --sslPEMKeyFile --sslPEMKeyPassword --sslClusterFile --sslClusterPassword --sslClusterCAFile --sslCAFile --sslCRLFile --sslAllowConnectionsWithoutCertificates --sslAllowInvalidCertificates --sslAllowInvalidHostnames --sslDisabledProtocols --sslCipherConfig --sslOnNormalPorts --noscripting --redactClientLogData --setParameter --replSet --replset --replSetAutoInitiate --oplogSize --oplogMinRetentionHours --expireOplogDays --expireOplogHours --cacheSize --directio --compressLog --wiredTigerJournalCompressor --checkpointPeriod --cleanerPeriod --cleanerIterations --logFlushPeriod --journalCommitInterval --lockTimeout --locktreeMaxMemory --fsRedzone --logDir --logArchiveDir --tmpDir --loaderCompressTmp --loaderMaxMemory --txnMemLimit --wiredTigerCacheSizeGB --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -f)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dbpath)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --backupRoot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind_ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind_ip_all)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ipv6)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --maxConns)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --maxIncomingConnectionsOverride)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --nounixsocket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --unixSocketPrefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filePermissions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --statusPort)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --statusBindIp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --statusTokenFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --statusShowValues)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logpath)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logappend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --quiet)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --verbose)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --slowms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --profile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fork)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pidfilepath)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --clusterAuthMode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --clusterIpSourceAllowlist)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --clusterIpSourceWhitelist)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --noauth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --transitionToAuth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auditDestination)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auditFormat)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auditPath)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auditFilter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --enableEncryption)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --encryptionKeyFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --encryptionKeyCommand)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --encryptionCipherMode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relaxPermChecks)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsMode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsCertificateKeyFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsCertificateKeyFilePassword)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsClusterFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsClusterPassword)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsCAFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsClusterCAFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsCRLFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsAllowConnectionsWithoutCertificates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsAllowInvalidCertificates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsAllowInvalidHostnames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsDisabledProtocols)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsCipherConfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsClusterAuthX509Attributes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsClusterAuthX509ExtensionValue)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsLogVersions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tlsOnNormalPorts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslMode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslPEMKeyFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslPEMKeyPassword)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslClusterFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslClusterPassword)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslClusterCAFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslCAFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslCRLFile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslAllowConnectionsWithoutCertificates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslAllowInvalidCertificates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslAllowInvalidHostnames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslDisabledProtocols)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslCipherConfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sslOnNormalPorts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --noscripting)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --redactClientLogData)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --setParameter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replSet)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replSetAutoInitiate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --oplogSize)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --oplogMinRetentionHours)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --expireOplogDays)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --expireOplogHours)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacheSize)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --directio)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --compressLog)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --wiredTigerJournalCompressor)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --checkpointPeriod)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cleanerPeriod)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cleanerIterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logFlushPeriod)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --journalCommitInterval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lockTimeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --locktreeMaxMemory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fsRedzone)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logDir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logArchiveDir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tmpDir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loaderCompressTmp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loaderMaxMemory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --txnMemLimit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --wiredTigerCacheSizeGB)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _fernd -o nosort -o bashdefault -o default fernd
else
    complete -F _fernd -o bashdefault -o default fernd
fi
