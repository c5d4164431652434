"""The templates that scripts are made of: one a line, `¶` is a newline, `«name»` is a hole.

POSIX ones are for every shell, BASH ones for bash only. Files are named f1 to f7 (from f5 on by `exec`
only: what two descriptors overwrite depends on the length of a script's name), directories d1 to d3: a
template writes nowhere else, and never uses `/` in the name of a file that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping

_POSIX = r"""
[stmt]
«cmd»
«cmd»
«cmd»
«cmd» && «cmd»
«cmd» || «cmd»
! «cmd»
«cmd» | cat
«cmd» | «cmd» | cat; echo $?
«cmd»; echo "rc=$?"
«cmd» # comment with ' and " and `
# comment \¶«cmd»
«cmd» «redir»
«cmd» >f1 2>&1; cat f1
«cmd» \¶  «word»
«assign»
«assign» «cmd»
«assign» eval 'echo "$v1"'
«compound»
«compound»
«compound» «redir»
«compound» | while IFS= read -r x; do echo "<$x>"; done
«heredoc»
«heredoc»
«function»
«function»
«trap»
«option»
«state»
«state»
«job»
«end»
«odd»
[cmd]
echo «word» «word»
echo «word»
echo "$v1" "$v2" "${v3-unset}"
printf '%s|' «word» «word»; echo
printf '%s\n' «word»
printf "%d %x %c %5s %-5s. %b\n" 10 255 abc ab ab 'a\tb\0101'
printf '%d\n' «word»
printf '%s %s\n' a b c
printf 'no newline'
printf '\033[1m%s\r\n' «word»
echo err >&2
true
false
:
test «word» = «word»
[ -z «word» ]
[ -n "$v1" ] && echo set
cat /dev/null
cat <f1
cat f1 2>/dev/null
nosuchcommand «word»
./nosuchfile
/nosuch/file
ls nosuchfile
ls | cat
pwd
cat
read v1; echo "rc=$? $v1"
(exit «int»)
sh -c 'exit «code»'
sh -c 'echo "$1"; exit 3' a b
eval «word»
eval 'echo "$v1"; false'
eval "echo «sq»"
eval 'x=$(echo hi'
eval 'if'
eval 'echo a' 'b; (exit 4)'
command echo «word»
command -v echo
command nosuch
env -i sh -c 'echo ${v1-none}'
expr 1 + 2
seq 3 | sort -r
wc -c <<E¶«text»¶E
tr a-z A-Z <<E¶$v1 «text»¶E
f «word» «word»
g
echo $#: "$@"
echo $((«arith»))
echo "$(«cmd»)"
x=$(«cmd»); echo "rc=$? [$x]"
echo `«bt»`
exec 3>f1; echo three >&3; exec 3>&-; cat f1
unset v1; echo "${v1-gone}"
: ${v2:=assigned}; echo "$v2"
: "${v4:?«text»}"
set -- «word» «word»; echo $#; for i; do echo "<$i>"; done
set -- a 'b c' ''; shift; echo "$#" "$1"
shift 9
IFS=:; set -- $v1; echo "$#"; IFS=' '
getopts ab:c x -a -b val «word»; echo "$x ${OPTARG-none}"
while getopts :ab: o -a -b arg -z; do echo "$o:${OPTARG-}"; done
umask 027; umask
type echo
. ./nosuch
echo 'echo sourced $v1; v3=fromsource' >f2; . ./f2; echo "$v3"
echo 'return 5; echo not' >f2; . ./f2; echo $?
echo 'if' >f2; . ./f2; echo $?
test -f f1; echo $?
echo "a
b"
echo 'c
d'
readonly r1=1; echo $r1
r1=2; echo after
local v1=2
break
continue
alias ll='echo aliased'; ll
alias q="echo '"; q x'
unalias -a
hash -r
ulimit -c 0
cd nosuchdir
kill -l >/dev/null
[ 1 -eq x ]
[ a b c ]
echo a >f3; cat f3 f3 >f4; wc -l <f4
[word]
abc
x1
-n
-e
--
a\ b
a\\b
\'
\"
''
""
'a b'
"a b"
«sq»
«dq»
«dq»
$v1
"$v1"
${v2}
"${v2}"
${v3:-default}
"${v3:-a "b" c}"
${v3-'q'}
${v1:+alt}
${#v1}
"${v1%%*b}"
${v1#?}
"${v1#"$v2"}"
$?
$#
"$@"
$*
"$*"
$1
${10}
$((«arith»))
$(«cmd»)
"$(«cmd»)"
"$(echo "$(echo "nested $v1")")"
$(case x in x) echo in-case;; esac)
$(case x in (x) echo "in)";; esac)
$(echo ')' # comment )¶)
$(cat <<E¶«text» $v1¶E¶)
"`«bt»`"
`echo \`echo inner\``
`echo "\$v1 \\\\"`
*
f?
[a-c]*
~
"~"
a=b
{a,b}c
{1..3}
!x
#x
a#b
é
日本
«bytes»
'«bytes»'
'«ctl»'
"«ctl»x"
%s
\
a\¶b
"a\¶b"
'a\¶b'
$'x\ty'
$
"$"
\$v1
"\$v1 \` \\ \" \a"
'$v1 `x` \'
[sq]
'plain'
'$v1'
'it'\''s'
'a "b" `c` $(d)'
'\'
'line1¶line2'
'# no comment'
'tab	tab'
[dq]
"plain $v1"
"it's"
"a 'b' c"
"$(echo "in $(echo 'deep "q"')")"
"${v1:-"x y"}"
"${v1:-'x y'}"
"\"esc\""
"line1¶line2"
"$((1+1))"
"back\\slash"
"`echo bt`"
"!bang!"
"# no comment"
"${v3:-}}"
[text]
text
two words
$v1
\$v1
$(echo sub)
`echo bt`
\
\\
'quote
"dquote
a\¶b
	tabbed
$((1+2))
${v3:-def}
E 
 E
)
¶
é «bytes»
[arith]
1+2
2*(3+4)
v5+1
v5=5
1<2
7%3
-1
0x1f
010
1?2:3
1 /0
1+
v1
1==1&&0
~0
[bt]
echo bt
echo "bt $v1"
echo \$v1
echo 'a\\b'
echo a # c
false
cat <<E¶«text»¶E¶
[assign]
v1=«word»
v1=«word»
v2=«sq»
v2=«dq»
v1="a b  c"
v1=a:b:c
v3=
v1=$v2$v1
v1=«word» v2=«word»
v5=7
v1=$(«cmd»)
PATH=$PATH
[redir]
>f1
>>f1
2>f2
2>&1
>&2
2>/dev/null
<f1
</dev/null
3>f3
3>&1
4>&1 >&4
5<f1
7>&1 1>&2 2>&7
9>&1
2>&-
>&-
<&-
<>f4
>|f1
>"f 1"
>/dev/null 2>&1
<<E¶«text»¶E
<nosuch
>d1
>&5
[compound]
{ «block»¶}
{ «cmd»; }
( «block» )
(«cmd»)
if «cmd»; then «block»¶else «block»¶fi
if «cmd»¶then «cmd»¶elif «cmd»; then «cmd»¶fi
for i in «word» «word»; do «block»¶done
for i in 1 2 3; do echo $i; «cmd»; done
for i in; do echo never; done
for i¶do¶echo "$i"¶done
i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i; done
i=0; until [ $i -ge 2 ]; do i=$((i+1)); «cmd»; done
for i in a b c; do case $i in b) continue;; c) break;; esac; echo $i; done
for i in 1 2; do for j in 1 2; do [ $j = 2 ] && continue 2; echo $i$j; done; done
case «word» in «word») «cmd»;; *) echo default;; esac
case $v1 in (a|b) echo ab;; [!x]*) echo notx;; "") echo empty;; esac
case x in x) echo one;; x) echo two; esac
case x in¶esac
while read -r x; do echo "[$x]"; done <<E¶«text»¶two¶E
( trap 'echo subexit' EXIT; «cmd» )
( cd d1 2>/dev/null; pwd; «cmd» ); pwd
( set -e; false; echo not ); echo $?
( exit 3 ); echo $?
{ echo out; echo err >&2; } 2>&1 | sort
{ «cmd»; } 2>&1 | cat
if ! «cmd»; then echo no; fi
«cmd» && { «block»¶} || «cmd»
((((echo deep))))
( ( ( echo deep ) ) )
[heredoc]
cat <<E¶«text»¶«text»¶E
cat <<'E'¶«text»¶$v1 `x` \¶E
cat <<"E"¶«text»¶E
cat <<\E¶«text»¶E
cat <<-E¶	«text»¶		«text»¶	E
cat <<-'E'¶	$v1¶	E
cat <<A; cat <<B¶in a «text»¶A¶in b «text»¶B
cat <<A - <<B¶a¶A¶b «text»¶B
cat <<'a b'¶«text»¶a b
cat <<E | tr a-z A-Z¶«text»¶E
cat <<E >f1; cat f1¶«text»¶E
cat <<E && echo ok¶«text»¶E
cat <<E¶$(cat <<F¶inner «text»¶F¶)¶E
cat <<E¶unterminated «text»
cat <<E
cat <<E¶E
cat <<E¶E # not the end¶E
x=$(cat <<E¶«text»¶E¶); echo "[$x]"
while read -r l; do echo "($l)"; done <<E¶«text»¶«text»¶E
( cat <<E¶«text»¶E¶)
f() { cat <<E¶in f $1 «text»¶E¶}; f arg
for i in 1 2; do cat <<E¶$i «text»¶E¶done
cat <<E <<F¶lost¶E¶kept¶F
cat 5<<E <&5¶five «text»¶E
cat <<E¶«long»¶E
sh <<'E'¶echo from stdin; exit 4¶E
read a <<E; echo "$a"¶«text»¶E
cat <<E\¶OF¶joined¶EOF
[function]
f() { echo "f:$#:$1"; «cmd»; }; f «word»
f() { «block»¶}¶f a "b c"
f() ( «block» ); f
f() { return «code»; }; f; echo $?
f() { local v1=inner; echo "$v1"; }; f; echo "$v1"
f() { echo "$@"; } 2>/dev/null; f «word»
f() { set -- x y; echo $#; }; f 1 2 3; echo $#
f() { cat; }; echo piped | f
f() { exit «code»; }; f; echo not
f() { g; }; g() { echo g; }; f
f() { [ "$1" -gt 0 ] || return 0; echo "$1"; f $(($1-1)); }; f 3
f() { trap 'echo fexit' EXIT; echo in; }; f
f()¶{¶«cmd»¶}¶f
f() { shift; echo "$1"; }; f a b; f
f() if true; then echo body; fi; f
f() for i in a b; do echo $i; done; f
test() { printf 'shadow test\n'; }; test a; unset -f test
echo() { printf 'E:%s\n' "$*"; }; echo hi
printf() { command printf 'P:%s\n' "$1"; }; printf hi; unset -f printf
cd() { command cd "$@" && command pwd; }; cd .
pwd() { command echo fake; }; pwd
true() { return 1; }; true; command echo $?
read() { command echo noread; }; read x
cat() { command cat -n; }; command echo line | cat
g() { printf 'old\n'; }; g() { printf 'new\n'; }; g
f() { unset -f f; printf 'once\n'; }; f; f
[trap]
trap 'echo exit:$?' EXIT
trap 'echo exit; exit 3' EXIT
trap 'echo two¶echo lines' EXIT
trap '' INT
trap 'echo usr1' USR1; kill -USR1 $$; echo after
trap 'echo term' TERM; kill -TERM $$; echo after
trap 'echo int' INT; kill -INT $$; echo after
trap 'false' EXIT; true
trap - EXIT
trap 'echo x' EXIT; trap
trap "echo '" EXIT
trap 'cat nosuch' EXIT; exit 0
trap 'echo hup' HUP; (kill -HUP $$); echo after
trap 'v1=trapped' USR2; kill -USR2 $$; echo $v1
(trap 'echo sub' EXIT; exit 2); echo $?
[option]
set -e; «cmd»; echo alive
set -e¶«compound»
set -e; f() { false; echo in; }; f || echo or
set -e; x=$(false); echo not
set -e; if false; then :; fi; echo alive
set -e; ! true; echo alive
set -e; false | true; echo alive
set -u; echo $nosuchvar; echo not
set -u; echo ${nosuchvar-fine}
set -x; echo traced «word»; set +x
set -x; v1=«word»; set +x; echo "$v1"
set -x¶«cmd»
{ set +x; } 2>/dev/null
set -v¶echo verbose¶set +v
set -f; echo *; set +f; echo f*
set -C; echo a >f1; echo b >f1; echo $?; set +C
set -a; v6=exported; set +a; sh -c 'echo $v6'
set +e; false; echo on
set -n¶echo never
set -ue; «cmd»
set --; echo $#
set -- -x; echo $1
set -o nosuch
set -eu; f() { «cmd»; }; f
[state]
cd d1; pwd
mkdir d1 d2; cd d1; pwd; cd ../d2; pwd
mkdir -p d1/d2; cd d1/d2; pwd
mkdir d1; cd d1; cd -; pwd
mkdir d1; ln -s d1 d3; cd d3; pwd; pwd -P
mkdir 'd 1'; cd 'd 1'; pwd
mkdir d1; cd d1 && rmdir ../d1; pwd; echo $?
cd; pwd
cd ''; echo $?
cd .; echo "${OLDPWD-none}"
CDPATH=.; mkdir d1; cd d1; pwd
export v1; sh -c 'echo "$v1"'
export v7=«word»; sh -c 'echo "$v7"'
export v7='a b¶c'
export v8
export v8=; unset v8
export v7="«bytes»"
readonly r2=x; export r2
unset v7
HOME=/nowhere; echo ~
OLDPWD=./d1
PWD=/fake; pwd
umask 077; touch f1
v9=«word»; export v9
unset PATH; echo still; ls d1
PATH=/nosuch; ls; echo $?
unset HOME; echo ~; cd; echo $?
unset IFS; v1='a b'; set -- $v1; echo $#
IFS=; v1='a b'; set -- $v1; echo $#
exec 3>f6; echo to3 >&3
exec >f5; echo hidden
exec 2>&1; nosuchcommand
exec 2>/dev/null; nosuchcommand
exec >f5 2>&1; «cmd»; pwd
exec 3<&0; cat <&3
exec >&-; echo lost; echo $? >f2
exec 4>&1; echo four >&4; exec 4>&-
exec <f1; read x; echo $x
echo line >f1; exec <f1; read x; echo "$x"
exec 6<>f7; echo x >&6
export LC_ALL=C; v1=é; echo ${#v1}
export LANG=C.UTF-8; v1=日本; echo ${#v1}
[job]
sleep 0.01 & wait; echo waited
(echo bg; exit 3) & wait $!; echo $?
«cmd» >/dev/null 2>&1 & wait
{ sleep 0.01; echo late >f1; } & wait; cat f1
false & wait $!; echo $?
sleep 0.01 & wait; wait; echo $?
wait 999999; echo $?
echo a & wait
(sleep 0.02; echo one) & (sleep 0.07; echo two) & wait; echo done
sleep 5 >/dev/null 2>&1 & kill $!; wait $! 2>/dev/null; echo $?
[end]
exit
exit «code»
exit 3; echo not
exit 256
exit abc
(exit 5); exit
return
return 3
exec echo replaced «word»
exec nosuchcommand; echo after
exec sh -c 'exit 6'
exec true
kill -TERM $$
kill -KILL $$
kill -HUP $$
kill -INT $$; echo after
kill -PIPE $$
kill -USR1 $$
«cmd»; exit $?
if true; then exit 4; fi
{ exit 2; }
false; exit
[code]
0
1
3
42
126
127
255
[odd]
)
}
fi
;;
if
if true; then
while
for
case x in
{
(
'
"
`
$(
${v1
$((1+
echo a | | echo b
echo a && && b
echo a ;; echo b
& echo a
echo a &
echo a & &
; echo a
echo "unfinished
echo 'unfinished
f() {
f(
function
echo >
echo <
cat <<
if true then echo; fi
for i in a b; echo $i; done
esac
echo $(
echo `
echo ${v1
echo ${
echo ${}
echo ${v1!}
echo $((
echo \
\
\\
!
! !
""
''
$nosuchvar
"$nosuchvar"
$(true)
$(false)
`false`
v1=a=b; echo $v1
1v=2
v-1=2
=x
=
{}
{ }
()
( )
[
[ ]
]
echo }
echo {
echo ]
echo fi if then
if(true)then echo tight;fi
echo a#b #c
: <<E¶ignored «text»¶E
«long»
echo '«long»'
echo "«long»"
echo «long»
: «long»
v1='«long»'; echo ${#v1}
# «long»
echo «bytes»
«bytes»
«ctl»
echo a«ctl»b
echo 'a«ctl»b'
	echo tab	tab
   echo spaces   
echo a;echo b
echo a ; ; echo b
echo 1>f1;cat f1
echo 1 >f1;cat f1
echo a\¶ b
echo a \¶# b
# c \¶echo b
echo a \ ¶echo b
«cmd»¶¶¶«cmd»
"""

_BASH = r"""
[stmt]
«arrays»
«arrays»
«bashism»
«bashism»
«bashism»
«bashtrap»
«bashoption»
«source»
[cmd]
echo -e 'a\tb\x41\0101'
echo -n x
printf '%q ' «word»; echo
printf '%(x)T' 2>/dev/null | wc -c
printf -v v1 '%03d' 7; echo $v1
printf '%s\n' "${a[@]}"
printf '%*d|%-*s|\n' 5 42 6 ab
printf '%b\n' 'a\u00e9\c after'
[[ «word» == «word» ]]; echo $?
[[ $v1 =~ ^(a)(.*)$ ]] && echo "${BASH_REMATCH[2]}"
[[ -n $v1 && ! -f f1 ]] && echo yes
((v5++)); echo $? $v5
((«arith»)) && echo true
let v5=3+4; echo $v5
cat <<<«word»
read -r v1 v2 <<<"one two three"; echo "$v2"
read -a a <<<"x y z"; echo "${#a[@]}"
read -d '' v1 <<<"a"; echo "rc=$? [$v1]"
mapfile -t a < <(printf '1\n2\n'); echo ${a[1]}
cat < <(echo procsub)
diff <(echo a) <(echo b)
echo data > >(cat >/dev/null); wait
wc -l < <(«cmd») | tr -d ' '
«cmd» |& cat
true; echo ${PIPESTATUS[@]}
true | false | true; echo "${PIPESTATUS[*]}"
pushd d1 2>&1; popd 2>&1; dirs
mkdir -p d1 d2; pushd d1 >/dev/null; pushd ../d2 >/dev/null; dirs -p | wc -l; popd >/dev/null; pwd
source ./nosuch
declare -p v1
declare -i v5=3+4; echo $v5
type -t f echo nosuch
builtin echo b
compgen -b | head -2
enable -n nosuch
help nosuch >/dev/null 2>&1; echo $?
shopt nullglob
[word]
$'a\tb'
$'it\'s'
$'\x41\u00e9\101'
$'\e[1m'
$'nul\0cut'
$"locale"
$"x $v1"
${v1/a/b}
${v1//[a-z]/X}
${v1^^}
${v1,,}
${v1:1:2}
${v1: -1}
${!v1}
${v1@Q}
"${a[@]}"
${a[*]}
${#a[@]}
"${!a[@]}"
${a[0]}
${a[-1]}
"${m[k]}"
{a..e}
{1..3}{x,y}
{a,{b,c}}d
"{a,b}"
x{,y}
$[1+2]
<(echo fd)
@(a|b)
[arrays]
a=(1 2 "three four" [5]=six); echo "${#a[@]} ${!a[*]}"
a=("$@" «word»); printf '<%s>' "${a[@]}"; echo
a+=(more); echo ${#a[@]}
declare -A m=([k]=v [a b]=c); for i in "${!m[@]}"; do echo "$i"; done | sort
declare -A m; m[k]=«word»; echo "${m[k]}"
unset 'a[1]'; echo "${a[*]}"
a=(); echo "${a[@]}" ${#a[@]}
a=($(echo x y)); echo ${a[1]}
for i in "${a[@]}"; do echo "<$i>"; done
f() { local -a a=(in); echo ${a[0]}; }; f; echo ${a[0]-none}
declare -n ref=v1; ref=viaref; echo $v1
a=(x¶y¶# comment¶z); echo ${#a[@]}
local -A m
a[0]=x; a[2]=z; echo "${a[@]/%/!}"
export a=(1 2)
declare -r r3=5; r3=6; echo after
declare -x v7=dx; sh -c 'echo $v7'
declare -u v2=upper; echo $v2
[bashism]
function f { echo "f $*"; «cmd»; }; f a
function f() { local v1; v1=in; «cmd»; echo "$v1"; }; f
function f¶{¶«cmd»¶}¶f
select i in a b; do echo "$i"; break; done <<<1
select i in a b; do echo never; done
case x in x) echo 1;& y) echo 2;; z) echo 3;; esac
case x in x) echo 1;;& [x]) echo 2;;& y) echo 3;; *) echo 4;; esac
for ((i=0; i<3; i++)); do echo $i; done
for ((i=0; i<2; i++)) { echo $i; }
for ((;;)); do break; done
coproc { cat; }; echo hi >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo "$x"; exec {COPROC[1]}>&-; wait
exec {fd}>f1; echo x >&$fd; exec {fd}>&-; cat f1
time -p true 2>/dev/null
{ time true; } 2>/dev/null
! time false 2>/dev/null; echo $?
[[ a < b && c > b ]]; echo $?
[[ a == a* && ( b || c ) ]] && echo paren
[[ a =~ ( ]]
[[ -v v1 ]]; echo $?
echo "${FUNCNAME[0]-main}"
f() { echo "${FUNCNAME[0]}"; }; f
f() { return 300; }; f; echo $?
f() { echo $1; }; export -f f; bash -c 'f sub'
export -f nosuchf
&>f1 echo both; cat f1
echo both &>>f1; cat f1
echo err 2>&1 >/dev/null |& cat
cat <<< "a"'b'$'\n'c
cat <<<$v1 <<<last
trap 'echo x' EXIT; (echo sub); bash -c 'exit 2'; echo $?
bash -c 'echo "$1 $BASH_SUBSHELL"' name arg
bash -c 'nosuchcommand'; echo $?
bash -c 'if'; echo $?
(echo $BASH_SUBSHELL; (echo $BASH_SUBSHELL))
eval 'f() { echo evaled; }'; f
eval $'echo a\necho b'
eval 'cat <<E¶«text»¶E'
echo "$(( 1 + $(echo 2) ))"
x=(); x[$(echo 1)]=y; echo ${!x[@]}
builtin cd . ; command cd .
printf '%s\n' {a..c}{1,2}
echo $(( 2**10 )) $(( 16#ff ))
echo "${v3:?message}"; echo not
echo ${v1:?} ${nosuchvar:?gone}; echo not
v1=abc; echo ${v1:0:1}${v1: -1:1}
while read -r x; do echo "$x"; done < <(printf 'a\nb')
{ echo a; echo b; } > >(cat); wait $!
echo a | { read x; echo "$x"; }; echo "${x-unset}"
until ((1)); do :; done; echo u
if [[ $v1 ]]; then echo t; elif ((0)); then :; else echo e; fi
coproc nosuchcommand 2>/dev/null; wait; echo $?
disown; echo $?
exit() { builtin echo fake exit; }; exit 3
return() { builtin echo fake; }; return
eval() { builtin echo "eval:$*"; }; eval a
set() { builtin echo "set:$*"; }; set -e
trap() { builtin echo "trap:$*"; }; trap x EXIT
unset() { builtin echo "unset:$*"; }; unset v1
exec() { builtin echo "exec:$*"; }; exec true
command() { builtin echo "command:$*"; }; command true
export() { builtin echo "export:$*"; }; export x=1
.() { builtin echo dot; }; . x
:() { builtin echo colon; }; :
[() { builtin echo bracket; }; [ a ]
source() { builtin echo src; }; source x
declare() { builtin echo decl; }; declare -p
a-b() { echo dash; }; a-b
hash ls; hash -t nosuch
[bashtrap]
trap 'echo err:$?' ERR; false; echo after
trap 'echo err' ERR; f() { false; }; f; echo after
set -E; trap 'echo err' ERR; f() { false; true; }; f
trap 'echo err' ERR; false || true; ! true; if false; then :; fi; (false)
trap 'echo "dbg $BASH_COMMAND"' DEBUG; echo one; echo two
trap 'echo dbg' DEBUG; f() { echo in; }; f
set -T; trap 'echo dbg' DEBUG; f() { echo in; }; f; trap - DEBUG
trap 'echo ret' RETURN; f() { echo in; }; f
set -T; trap 'echo ret' RETURN; f() { echo in; return 2; }; f
trap 'exit 9' ERR; false; echo not
trap 'echo bye; trap - ERR' ERR; false; false
set -e; trap 'echo err' ERR; trap 'echo exit' EXIT; false; echo not
trap 'echo "x $?"' EXIT ERR; (exit 6)
trap 'echo dbg >&2' DEBUG; true | true; trap - DEBUG
trap 'echo a' EXIT; trap -p EXIT
trap 'echo int; exit 7' INT; kill -INT $$; sleep 1
[bashoption]
set -o pipefail; false | true; echo $?
set -eo pipefail; false | true; echo not
set -euo pipefail; «cmd»; «cmd»; echo end
set -euo pipefail; a=(); echo "${a[@]}"; echo ok
shopt -s nullglob; echo nosuch*; shopt -u nullglob
shopt -s failglob; echo nosuch*; echo $?; shopt -u failglob
shopt -s extglob¶case ab in +(a|b)) echo ext;; esac
shopt -s expand_aliases; alias hi='echo aliased'¶hi there¶unalias hi
shopt -s expand_aliases¶alias a1='echo '¶a1 a1
shopt -s lastpipe; echo x | read v1; echo $v1
shopt -s globstar dotglob; echo **
shopt -s nosuchopt; echo $?
shopt -s inherit_errexit; set -e; x=$(false; echo no); echo "$x"
set -o posix; echo posix; «cmd»; set +o posix
set -o posix; . ./nosuch; echo after
set -o posix; export 1x; echo after
set -k; echo a=b; set +k
set +B; echo {a,b}; set -B
set -P; mkdir d1; ln -s d1 d3; cd d3; pwd; set +P
set -o noclobber; echo a >f1; echo b >f1; echo c >|f1; cat f1
set -o nounset; echo "${a[5]}"; echo not
set -o errexit; «compound»
set -o noexec¶echo never
shopt -s xpg_echo; echo 'a\tb'
shopt -s compat44; echo x
set -r; cd d1; echo $?
[source]
echo 'echo in; return 4' >f2; source ./f2; echo $?
echo 'exit 7' >f2; source ./f2; echo not
echo 'echo "$1"; set -- new' >f2; source ./f2 arg; echo "$#"
echo 'f() { echo sourced; }' >f2; . ./f2; f
printf 'echo a\r\necho b\r\n' >f2; . ./f2
echo 'cat <<E¶in file' >f2; . ./f2; echo $?
echo 'echo (' >f2; . ./f2; echo $?
source <(echo 'echo from procsub; v1=ps'); echo $v1
source /dev/stdin <<<'echo from stdin'
echo 'trap "echo exit in source" EXIT' >f2; . ./f2
printf 'echo bin\0ary\n' >f2; . ./f2
[state]
pushd d1; pwd
mkdir -p d1/d2; pushd d1/d2; pwd
cd -P .; pwd
declare -x v7=«word»
export v7+=more
typeset v1=t; echo $v1
export -n v7
readonly -p | grep r1
shopt -s autocd; d1; pwd
f() { declare -gx v6=global; }; f
export -f f 2>/dev/null
unset -n ref
set -h; hash
exec {fd}<>f7; echo more >&$fd
BASH_ENV=./f2 bash -c 'echo sub'
GLOBIGNORE='f*'; echo *; unset GLOBIGNORE
cd -- "$PWD"; cd ~+; pwd
v1=$EPOCHSECONDS; [ -n "$v1" ] && echo time
SECONDS=5; [ $SECONDS -ge 5 ] && echo secs; unset v1
TMOUT=10; echo tmout
PROMPT_COMMAND='echo prompted'; echo x
PS1='$ '; echo "$PS1"
HISTFILE=./f3; echo h
[job]
sleep 0.01 & wait -n; echo $?
set -m; sleep 0.01 & wait; set +m; echo m
(exit 4) & p=$!; wait -n $p; echo $?
for i in 1 2 3; do (exit $i) & done; wait; echo $?
{ sleep 0.02; exit 5; } & wait %1; echo $?
coproc true; wait
"""


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.strip("\n").split("\n"):
        if line.startswith("[") and line.endswith("]") and line[1:-1].isalpha() and line.islower():
            name = line[1:-1]
            found.setdefault(name, [])
        else:
            found[name].append(line.replace("¶", "\n"))
    return found


def tables(dialect: str) -> Mapping[str, list[str]]:
    """The templates of a dialect, by the name of the hole that they fill."""
    posix, bash = _sections(_POSIX), _sections(_BASH)
    if dialect != "bash":
        return posix
    return {name: posix.get(name, []) + bash.get(name, []) for name in {**posix, **bash}}
