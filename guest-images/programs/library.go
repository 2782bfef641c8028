// What Go's library computes: maps, sorting, strings, formats, regular expressions, big numbers, hashes, compression,
// JSON, base64, floating point, reflection.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/big"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"text/template"
	"unicode"
)

type record struct {
	Name   string            `json:"name"`
	Value  float64           `json:"value"`
	Tags   []string          `json:"tags,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Next   *record           `json:"next,omitempty"`
}

func words(text string) {
	counts := map[string]int{}
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		counts[word]++
	}
	keys := make([]string, 0, len(counts))
	for key := range counts {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(a, b int) bool {
		if counts[keys[a]] != counts[keys[b]] {
			return counts[keys[a]] > counts[keys[b]]
		}
		return keys[a] < keys[b]
	})
	for _, key := range keys[:5] {
		fmt.Printf("%-8s|%4d|%x\n", key, counts[key], key)
	}
}

func hashes(data []byte) {
	sum := md5.Sum(data)
	fmt.Println(hex.EncodeToString(sum[:]))
	fmt.Printf("%x\n%x\n%x\n", sha1.Sum(data), sha256.Sum256(data), sha512.Sum512(data))
	mac := hmac.New(sha256.New, []byte("key"))
	mac.Write(data)
	fmt.Println(base64.StdEncoding.EncodeToString(mac.Sum(nil)), crc32.ChecksumIEEE(data))
}

func compressed(data []byte) {
	var buffer bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	writer.Write(data)
	writer.Close()
	fmt.Printf("%d bytes are %d, %08x\n", len(data), buffer.Len(), crc32.ChecksumIEEE(buffer.Bytes()))
	reader, err := gzip.NewReader(&buffer)
	if err != nil {
		panic(err)
	}
	again, _ := io.ReadAll(reader)
	fmt.Println("and again", bytes.Equal(again, data))
}

func documents() {
	first := record{"first", 1e21, []string{"a", "é"}, map[string]string{"z": "1", "b": "<2>"}, nil}
	text, _ := json.MarshalIndent(record{Name: "second", Value: -0.1, Next: &first}, "", " ")
	fmt.Println(string(text))
	var back record
	if err := json.Unmarshal(text, &back); err != nil {
		panic(err)
	}
	fmt.Printf("%+v %v\n", *back.Next, reflect.DeepEqual(*back.Next, first))
	var any interface{}
	fmt.Println(json.Unmarshal([]byte(`{"a":[1,2.5,null,true],"b":`), &any))
}

func large() {
	product := big.NewInt(1)
	for n := int64(1); n <= 100; n++ {
		product.Mul(product, big.NewInt(n))
	}
	power := new(big.Int).Exp(big.NewInt(3), big.NewInt(1000), big.NewInt(1000000007))
	root := new(big.Float).SetPrec(200).Sqrt(big.NewFloat(2))
	fmt.Println(product, power, root.Text('g', 50), product.ProbablyPrime(10))
	fmt.Println(new(big.Int).ModInverse(big.NewInt(12345), big.NewInt(1000003)))
}

func floats() {
	for _, x := range []float64{0, -1.5, math.Pi, 1e-310, math.MaxFloat64, math.Inf(-1)} {
		fmt.Println(strconv.FormatFloat(x, 'x', -1, 64), x, float32(x), math.Float64bits(math.Floor(x)))
	}
	fmt.Printf("%x %x %x\n", math.Sqrt(2), math.FMA(1.1, 2.2, 3.3), math.Exp(1))
	random := rand.New(rand.NewSource(7))
	fmt.Println(random.Perm(10), random.Float64(), random.Intn(1000))
}

func patterns(text string) {
	dates := regexp.MustCompile(`(\w+)@(\w+)\.(?:com|org)`)
	fmt.Println(dates.FindAllStringSubmatch("a@b.com, cc@dd.org; x@y.net", -1))
	fmt.Println(regexp.MustCompile(`[aeiou]+`).ReplaceAllStringFunc(text[:60], strings.ToUpper))
	template.Must(template.New("t").Parse("{{range $n, $w := .}}{{$n}}={{$w | printf \"%q\"}} {{end}}\n")).
		Execute(os.Stdout, strings.Fields(text)[:4])
}

func main() {
	data, err := io.ReadAll(bufio.NewReader(os.Stdin))
	if err != nil {
		panic(err)
	}
	words(string(data))
	hashes(data)
	compressed(data)
	documents()
	large()
	floats()
	patterns(string(data))
	order := make([]byte, 8)
	binary.BigEndian.PutUint64(order, 0x0102030405060708)
	fmt.Println(order)
}
